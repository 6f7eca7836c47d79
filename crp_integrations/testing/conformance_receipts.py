"""What the receipts facet of every store must do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from crp_integrations.errors import StoreError
from crp_integrations.fabric.ports import Store, Transaction
from crp_integrations.receipt.dsse import SigningKey
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.merkle import Tree, inclusion, root_of
from crp_integrations.receipt.ports import ReceiptsFacet, receipts_of
from crp_integrations.receipt.records import Draft, Receipt, issue, write
from crp_integrations.receipt.statement import Chain
from crp_integrations.receipt.verify import verify
from crp_integrations.session.ports import sessions_of
from crp_integrations.testing.conformance_sessions import (
    add,
    open_session,
    session,
    window,
    withdraw,
)
from crp_integrations.testing.records import KEY, NAMESPACE, OTHER, fact, fill, rows
from crp_integrations.vocabulary import FactStatus

SIGNER = SigningKey(bytes(range(32)))
# Facts whose ids are in no store.
ELSEWHERE = ("x-0", "x-1")


def receipt(number: int, *facts: str, shown: int | None = None, **chain: Any) -> Receipt:
    """A receipt on a window of `conformance_sessions`, which shows the first of its facts.

    Args:
        facts: ids; the text of each is `text of` and its id.
        shown: how many of them; None for all.
    """
    texts = [f"text of {id_}" for id_ in facts]
    numbers = tuple(range(4, 4 + len(facts)))[:shown]
    leaves = (
        Leaf("request", f"question {number}"),
        Leaf("context", parts=numbers) if numbers else Leaf("context"),
        Leaf("answer", f"answer {number}", of=numbers, follows=True),
        Leaf("prior", "what was said before", follows=True),
        *(Leaf(f"fact/{id_}", text, id_) for id_, text in zip(facts, texts, strict=True)),
    )
    at = {
        "session_id": "s",
        "window_id": f"w-s-{number}",
        "window_number": number,
        "timestamp": "2026-11-21T12:00:00Z",
        "hmac": f"sha256:{number}",
        "parents": (f"sha256:{number - 1}",) if number > 1 else (),
        "outcome": "released",
    }
    return issue(Draft({"number": number}, leaves), Chain(**{**at, **chain}), SIGNER, KEY)


def receipts_in(transaction: Transaction) -> ReceiptsFacet:
    """The facet, which a store of this suite has."""
    found = receipts_of(transaction)
    assert found is not None
    return found


def put(store: Store, *made: Receipt, sources: dict[str, str] | None = None) -> None:
    """Add receipts, each in a transaction of its own."""
    for one in made:
        with store.begin(NAMESPACE) as transaction:
            receipts_in(transaction).add(one, sources or {})


def kept(store: Store, one: Receipt) -> Receipt:
    """A receipt as the store has it, which must verify."""
    with store.begin(NAMESPACE, write=False) as transaction:
        found = receipts_in(transaction).get(one.receipt_id)
    assert found is not None
    verified = verify(write(found), key=SIGNER.public)
    assert verified.ok, (verified.place, verified.reason)
    assert found.signed == one.signed
    return found


def erased_in(one: Receipt) -> list[str]:
    """Names of the leaves whose texts were erased."""
    return [leaf.name for n, leaf in enumerate(one.leaves) if one.state(n) == "erased"]


class ReceiptsConformance:
    """Receipts are kept as they were signed, and their texts go with their facts."""

    def test_receipts_read_back_in_the_order_of_the_log(self, store: Store) -> None:
        """By id, by window and by session, with their places from 0."""
        made = [receipt(n, *ELSEWHERE) for n in (1, 2, 3)]
        other = receipt(1, session_id="t", window_id="w-t-1", hmac="sha256:t")
        put(store, *made[:2], other, made[2])
        ids = [one.receipt_id for one in (*made[:2], other, made[2])]
        with store.begin(NAMESPACE, write=False) as transaction:
            found = receipts_in(transaction)
            assert [found.get(id_) for id_ in ids] == [*made[:2], other, made[2]]
            assert found.of_window("w-s-2") == made[1]
            assert [found.place(id_) for id_ in ids] == [0, 1, 2, 3]
            assert found.ids() == ids
            assert found.ids(after=0, limit=2) == ids[1:3]
            assert found.ids(session_id="s") == [one.receipt_id for one in made]
            assert found.ids(after=0, limit=1, session_id="s") == [made[1].receipt_id]
            assert found.size() == 4
            for missing in ("", "crp_rcpt_0", "w-s-1"):
                assert found.get(missing) is None
                assert found.place(missing) is None
            assert found.of_window(ids[0]) is None

    def test_an_empty_namespace_has_an_empty_log(self, store: Store) -> None:
        """Nothing is made by reading."""
        with store.begin(NAMESPACE, write=False) as transaction:
            found = receipts_in(transaction)
            assert (found.size(), found.ids(), found.get("x")) == (0, [], None)
            with pytest.raises(StoreError, match="no node 0 of level 0"):
                found.node(0, 0)
            with pytest.raises(StoreError, match="opened for reading"):
                found.add(receipt(1), {})

    def test_a_receipt_is_added_once_and_whole_or_not_at_all(self, store: Store) -> None:
        """A transaction that is undone leaves neither a receipt nor a leaf of the log."""
        first, second = receipt(1, *ELSEWHERE), receipt(2, *ELSEWHERE)
        put(store, first)
        with pytest.raises(StoreError, match="is added once"):
            put(store, first)

        def add_and_raise() -> None:
            with store.begin(NAMESPACE) as transaction:
                receipts_in(transaction).add(second, {})
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            add_and_raise()
        with store.begin(NAMESPACE) as transaction:
            found = receipts_in(transaction)
            assert found.ids() == [first.receipt_id]
            assert found.node(0, 0) == first.log_hash
            with pytest.raises(StoreError, match="no node"):
                found.node(0, 1)
            assert found.add(second, {}) == 1

    def test_the_log_is_the_merkle_tree_of_what_was_signed(self, store: Store) -> None:
        """Its nodes are those of the whole tree at every size."""
        made = [receipt(n, *ELSEWHERE) for n in range(1, 20)]
        for size, one in enumerate(made, start=1):
            put(store, one)
            with store.begin(NAMESPACE, write=False) as transaction:
                node = receipts_in(transaction).node
                tree = Tree(other.log_hash for other in made[:size])
                assert root_of(size, node) == tree.root
                assert inclusion(size // 2, size, node) == inclusion(size // 2, size, tree.node)

    def test_another_namespace_has_receipts_of_its_own(self, store: Store) -> None:
        """No name of one leads into another."""
        one = receipt(1, *ELSEWHERE)
        put(store, one)
        with store.begin(OTHER) as transaction:
            found = receipts_in(transaction)
            assert found.get(one.receipt_id) is None
            assert found.of_window("w-s-1") is None
            assert (found.size(), found.ids()) == (0, [])
            assert found.add(one, {}) == 0

    @pytest.mark.parametrize("how", ["fact", "source", "removed"])
    def test_the_text_of_a_fact_goes_with_it(self, store: Store, how: str) -> None:
        """With every text that may quote it; the others stay, and everything verifies."""
        gone, other = fill(store, "gone", "other")
        shows = receipt(1, other, gone)
        chosen = receipt(2, other, gone, shown=1)
        without = receipt(3, other)
        put(store, shows, chosen, without, sources={gone: "doc"})
        match how:
            case "fact":
                assert withdraw(store, gone) == 2
            case "source":
                assert withdraw(store, source_id="doc") == 2
            case _:
                with store.begin(NAMESPACE) as transaction:
                    transaction.facts.remove([gone])
        assert erased_in(kept(store, shows)) == ["context", "answer", f"fact/{gone}"]
        # A candidate that was not shown is quoted by nothing.
        assert erased_in(kept(store, chosen)) == [f"fact/{gone}"]
        assert kept(store, without) == without
        assert withdraw(store, gone, source_id="doc") == 0
        assert withdraw(store, "unknown", source_id="another") == 0
        assert withdraw(store, other) == 3
        assert f"fact/{other}" in erased_in(kept(store, without))
        with store.begin(NAMESPACE, write=False) as transaction:
            found = receipts_in(transaction)
            tree = Tree(one.log_hash for one in (shows, chosen, without))
            assert root_of(3, found.node) == tree.root

    def test_an_erasure_that_is_undone_took_nothing(self, store: Store) -> None:
        """The texts go in the transaction that withdraws the facts."""
        (gone,) = fill(store, "gone")
        one = receipt(1, gone)
        put(store, one)

        def withdraw_and_raise() -> None:
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.remove([gone])
                raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            withdraw_and_raise()
        assert kept(store, one) == one

    def test_what_may_repeat_an_emptied_window_goes(self, store: Store) -> None:
        """A later window of the session never showed the fact, and may have been told of it."""
        gone, other = fill(store, "gone", "other")
        open_session(store, "s")
        add(store, window(1), gone)
        add(store, window(2), other)
        first, second = receipt(1, gone), receipt(2, other)
        put(store, first, second)
        assert withdraw(store, gone) == 2
        assert erased_in(kept(store, first)) == ["context", "answer", "prior", f"fact/{gone}"]
        assert erased_in(kept(store, second)) == ["answer", "prior"]
        assert kept(store, second).text(0) == "question 2"

    def test_a_fact_withdrawn_under_way_is_not_kept(self, store: Store) -> None:
        """Unless it is there again, as after another ingestion."""
        gone, back = fill(store, "gone", "back")
        withdraw(store, gone, back)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.remove([gone])
        one = receipt(1, gone, back)
        put(store, one)
        assert erased_in(kept(store, one)) == ["context", "answer", f"fact/{gone}"]

    def test_a_fact_deleted_under_way_is_not_kept(self, store: Store) -> None:
        """It is stored still, and withdrawn all the same."""
        deleted = fact("deleted", status=FactStatus.DELETED)
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add([deleted], rows([deleted]))
        withdraw(store, deleted.fact_id)
        one = receipt(1, deleted.fact_id, *ELSEWHERE, shown=0)
        put(store, one)
        assert erased_in(kept(store, one)) == [f"fact/{deleted.fact_id}"]

    def test_a_session_takes_the_texts_of_its_receipts_with_it(self, store: Store) -> None:
        """What was signed stays, and the log with it."""
        first, other = receipt(1, *ELSEWHERE), receipt(1, session_id="t", window_id="w-t-1")
        with store.begin(NAMESPACE) as transaction:
            sessions_of(transaction).keep(session("s"))
        put(store, first, other)
        with store.begin(NAMESPACE) as transaction:
            assert sessions_of(transaction).forget("s")
        gone = kept(store, first)
        assert erased_in(gone) == [leaf.name for leaf in gone.leaves]
        assert kept(store, other) == other

    def test_texts_of_every_kind_read_back(self, store: Store) -> None:
        """Characters that some stores treat in ways of their own come back."""
        leaves: Sequence[Leaf] = (
            Leaf("request", '\0 a \x1f \u2028 é 🦭 "quoted" \\'),
            Leaf("context"),
            Leaf("answer", ""),
        )
        chain = receipt(1).chain
        one = issue(Draft({}, tuple(leaves)), chain, SIGNER, KEY)
        put(store, one)
        assert kept(store, one) == one
