"""All laws that this project's own stores keep: those of the suite that ships, and deeper ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest

from crp_integrations.errors import AccessDenied, StoreError
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.ports.store import jobs_of
from crp_integrations.testing.conformance_transactions import (
    BATCH,
    SECRET,
    Attempt,
    fill_namespace,
    read_attempts,
    snapshot,
    write_attempts,
)
from crp_integrations.testing.fixtures import NAMESPACE, OTHER, fact, rows
from tests.conformance.edits import EditsLaws
from tests.conformance.equality import EqualityLaws
from tests.conformance.erasure import ErasureLaws
from tests.conformance.facts import FactsLaws, FaultedLaws
from tests.conformance.hooks import StoreHooks
from tests.conformance.journal import JournalLaws, ReceiptsLaws
from tests.conformance.processes import ConcurrencyLaws, CrashLaws, JobsLaws
from tests.conformance.search import SearchLaws
from tests.conformance.sessions import SessionsLaws, WithdrawalLaws
from tests.conformance.transactions import TransactionsLaws, UpkeepLaws

SHARED = "shared:law"


def write_at(store: Store, namespace: str, name: str, attempt: Attempt) -> None:
    """Try a way of writing in a namespace, and a setting, since some do nothing with these ids."""
    with store.begin(namespace) as transaction:
        attempt(transaction)
        transaction.facts.set_setting(name, "mine")


class LoginLaws(StoreHooks):
    """A login has the whole of its own namespace and nothing of another."""

    def test_a_login_has_the_whole_of_its_own(self, store: Store) -> None:
        ids = fill_namespace(store, OTHER)
        fill_namespace(store, SHARED)
        with closing(self.login(store, OTHER, reads=[SHARED])) as own:
            assert own.namespaces() == sorted([OTHER, SHARED])
            assert snapshot(own, OTHER, ids) == snapshot(store, OTHER, ids)
            new = fact("one more", namespace=OTHER)
            with own.begin(OTHER) as transaction:
                transaction.facts.add([new], rows([new]))
                transaction.facts.remove(ids[:1])
            assert own.scrub(OTHER) is True
            own.compact(OTHER)
            assert own.check(OTHER) == []
            with own.begin(SHARED, write=False) as transaction:
                assert len(transaction.facts.search_text([SECRET], 9)) == 3
            for name, attempt in write_attempts(ids).items():
                with pytest.raises((AccessDenied, StoreError)):
                    write_at(own, SHARED, name, attempt)

    def test_a_login_reaches_no_other_namespace(self, store: Store) -> None:
        ids = fill_namespace(store, NAMESPACE)
        fill_namespace(store, OTHER)
        before = snapshot(store, NAMESPACE, ids)
        with closing(self.login(store, OTHER)) as own:
            assert own.namespaces() == [OTHER]
            for name, attempt in {**read_attempts(ids), **write_attempts(ids)}.items():
                for write in (False, True):
                    with pytest.raises(AccessDenied), own.begin(NAMESPACE, write=write) as tx:
                        raise AssertionError(f"{name} was let in: {attempt(tx)}")
            verbs: tuple[Callable[[str], object], ...] = (own.scrub, own.compact, own.check)
            for verb in verbs:
                with pytest.raises(AccessDenied):
                    verb(NAMESPACE)
            assert own.files(NAMESPACE) == {}
            jobs = jobs_of(own)
            if jobs is not None:
                for asked in (
                    lambda: jobs.results(NAMESPACE, BATCH),
                    lambda: jobs.forget(NAMESPACE, BATCH),
                    lambda: jobs.put(NAMESPACE, BATCH, ["mine"]),
                    lambda: jobs.claim(NAMESPACE, BATCH).__enter__(),
                ):
                    with pytest.raises(AccessDenied):
                        asked()
        assert snapshot(store, NAMESPACE, ids) == before
        assert store.check(NAMESPACE) == []


class OwnStoreLaws(
    FactsLaws,
    EditsLaws,
    SearchLaws,
    JournalLaws,
    ReceiptsLaws,
    SessionsLaws,
    WithdrawalLaws,
    TransactionsLaws,
    UpkeepLaws,
    FaultedLaws,
    JobsLaws,
    EqualityLaws,
    ErasureLaws,
    CrashLaws,
    ConcurrencyLaws,
    LoginLaws,
):
    """Every law."""
