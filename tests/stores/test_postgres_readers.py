"""A login that may read a namespace and not write it: it looks, and pays no model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, CRPError, StoreBusy, StoreNewer
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.postgres import PostgresStore
from crp_integrations.stores.postgres.schema import schema_of
from crp_integrations.stores.postgres.tenants import SEALING
from crp_integrations.testing.fixtures import NOON
from crp_integrations.vocabulary import Strategy
from tests.doubles import ScriptedModel
from tests.postgres import server
from tests.stores.postgres_processes import OPTIONS

KINDS = {"USAGE": "SEQUENCE", "EXECUTE": "FUNCTION"}

QUESTION = "where does the walrus sleep?"
ROLE, PASSWORD = "crp_reader_of_tests", "a-password"
SCHEMA = schema_of("local")


@dataclass
class Setup:
    raw: psycopg.Connection
    database: str

    @property
    def address(self) -> str:
        return server().address(self.database, ROLE, PASSWORD)

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.raw.execute(statement)

    def read(self) -> None:
        self.run(
            f"GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {ROLE}",
        )

    def write(self) -> None:
        for name, what in SEALING:
            kind = KINDS.get(what, "TABLE")
            self.run(f"GRANT {what} ON {kind} {SCHEMA}.{name} TO {ROLE}")

    def write_all(self) -> None:
        """As an operator would; what spares work, such as kept counts, is written as well."""
        self.run(
            f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO {ROLE}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {SCHEMA} TO {ROLE}",
            f"GRANT EXECUTE ON FUNCTION {SCHEMA}.append_events TO {ROLE}",
        )

    @contextmanager
    def opened(self, model: ScriptedModel, **options: object) -> Iterator[Relay]:
        with Relay.open(self.address, **{**OPTIONS, **options}, models=model) as relay:
            yield relay


@pytest.fixture
def setup() -> Iterator[Setup]:
    with server().database() as name:
        with Relay.open(server().address(name), **OPTIONS) as relay:
            facts = [f"The walrus number {n} sleeps on the ice" for n in range(3)]
            due = Fact(
                content="The seal sleeps until ten in the morning on the beach",
                namespace="local",
                ttl="P1D",
            )
            relay.fabric.add([*facts, due])
            relay.ask(QUESTION, model="extractive")
        with psycopg.connect(server().address(name), autocommit=True) as raw:
            raw.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
            yield Setup(raw, name)
            raw.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def test_a_reader_looks_although_nothing_can_be_kept_and_upkeep_is_due(setup: Setup) -> None:
    setup.read()
    later = NOON + timedelta(days=2)
    with setup.opened(ScriptedModel("On the ice."), clock=later) as relay:
        # Counted with another tokenizer than those that are kept.
        assert relay.preview(QUESTION, model="mistral-large").facts_included
        assert relay.fabric.doctor().findings == ()
        assert relay.verify().windows == 1


@pytest.mark.parametrize("strategy", [Strategy.PUSH, Strategy.HIERARCHICAL, Strategy.REFLEXIVE])
def test_no_model_is_asked_for_a_reader(setup: Setup, strategy: Strategy) -> None:
    setup.read()
    model = ScriptedModel("On the ice.")
    with setup.opened(model) as relay:
        with pytest.raises(AccessDenied) as caught:
            relay.ask(QUESTION, model="gpt-4o", strategy=strategy)
        with pytest.raises(AccessDenied, match="may not write namespace 'local'"):
            list(relay.stream(QUESTION, model="gpt-4o"))
        with pytest.raises(AccessDenied, match="may not write namespace 'local'"):
            asyncio.run(relay.aask(QUESTION, model="gpt-4o", strategy=strategy))
    said = str(caught.value)
    assert "lacks UPDATE on own, UPDATE on fact_uses, INSERT on fact_uses and 1" in said
    assert "GRANT its role these" in said
    assert PASSWORD not in said
    assert model.calls == []


def test_what_is_asked_for_is_just_what_sealing_takes(setup: Setup) -> None:
    setup.read()
    setup.write()
    model = ScriptedModel("On the ice.")
    with setup.opened(model) as relay:
        assert relay.ask(QUESTION, model="gpt-4o").text == "On the ice."
    for name, what in SEALING:
        kind = KINDS.get(what, "TABLE")
        setup.run(f"REVOKE {what} ON {kind} {SCHEMA}.{name} FROM {ROLE}")
        paid = len(model.calls)
        with setup.opened(model) as relay, pytest.MonkeyPatch.context() as patched:
            with pytest.raises(AccessDenied, match=f"lacks {what} on {name};"):
                relay.ask(QUESTION, model="gpt-4o")
            assert len(model.calls) == paid, name
            # And it would have been refused when it was to be sealed.
            patched.setattr(PostgresStore, "must_write", lambda self, namespace: None)
            with pytest.raises(AccessDenied, match="its role has no right to it"):
                relay.ask(QUESTION, model="gpt-4o")
        setup.run(f"GRANT {what} ON {kind} {SCHEMA}.{name} TO {ROLE}")


def test_a_right_to_the_columns_is_one(setup: Setup) -> None:
    setup.read()
    setup.write()
    setup.run(
        f"REVOKE UPDATE ON {SCHEMA}.facts FROM {ROLE}",
        f"GRANT UPDATE (access_count, last_accessed_at) ON {SCHEMA}.facts TO {ROLE}",
    )
    with setup.opened(ScriptedModel("On the ice.")) as relay:
        assert relay.ask(QUESTION, model="gpt-4o").text == "On the ice."


def test_rights_that_come_and_go_while_a_relay_is_open(setup: Setup) -> None:
    setup.read()
    model = ScriptedModel("On the ice.")
    with setup.opened(model) as relay:
        with pytest.raises(AccessDenied):
            relay.ask(QUESTION, model="gpt-4o")
        setup.write_all()
        assert relay.ask(QUESTION, model="gpt-4o").text == "On the ice."
        paid = len(model.calls)
        setup.run(f"REVOKE EXECUTE ON FUNCTION {SCHEMA}.append_events FROM {ROLE}")
        # They were there a moment ago, so this one is paid.
        with pytest.raises(AccessDenied, match="its role has no right to it"):
            relay.ask(QUESTION, model="gpt-4o")
        assert len(model.calls) == paid + 1
        with pytest.raises(AccessDenied, match="lacks EXECUTE on append_events;"):
            relay.ask(QUESTION, model="gpt-4o")
        assert len(model.calls) == paid + 1


def test_a_namespace_that_a_login_may_not_make(setup: Setup) -> None:
    setup.read()
    model = ScriptedModel("On the ice.")
    with setup.opened(model, subject=Subject(tenant="never written")) as relay:
        with pytest.raises(AccessDenied, match="'never written' was never written"):
            relay.ask(QUESTION, model="gpt-4o")
        assert model.calls == []
        setup.run(f"GRANT CREATE ON DATABASE {setup.database} TO {ROLE}")
        assert relay.ask(QUESTION, model="gpt-4o").text == "On the ice."


@pytest.mark.parametrize("what", [f"ROLE {ROLE}", "DATABASE"])
def test_a_login_whose_transactions_only_read(setup: Setup, what: str) -> None:
    setup.read()
    setup.write()
    of = what if what != "DATABASE" else f"DATABASE {setup.database}"
    setup.run(f"ALTER {of} SET default_transaction_read_only = on")
    model = ScriptedModel("On the ice.")
    with setup.opened(model) as relay:
        assert relay.preview(QUESTION).facts_included
        with pytest.raises(StoreBusy) as caught:
            relay.ask(QUESTION, model="gpt-4o")
    assert "in namespace 'local'" in str(caught.value)
    assert "SET default_transaction_read_only = off" in str(caught.value)
    assert model.calls == []


def test_tables_of_a_newer_version(setup: Setup) -> None:
    setup.read()
    setup.write()
    setup.run(f"UPDATE {SCHEMA}.own SET value = 1000 WHERE name = 'schema_version'")
    model = ScriptedModel("On the ice.")
    with pytest.raises(CRPError) as caught, setup.opened(model) as relay:
        relay.ask(QUESTION, model="gpt-4o")
    assert isinstance(caught.value, StoreNewer)
    assert model.calls == []
