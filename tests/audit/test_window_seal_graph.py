"""Windows of a fan-out share a number, and a fan-in is chained to all that it follows."""

from __future__ import annotations

import hashlib
import hmac
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.audit import window_seals
from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.window_seals import session_key
from crp_integrations.errors import ChainBroken, StoreError
from crp_integrations.seals import window_hmac
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.sqlite import SqliteStore
from crp_integrations.vocabulary import ChainIntegrity
from tests.audit.chain_graphs import RING, SESSION, TENANT, Memory, diamond, window

KEY = session_key(RING, SESSION)
FIELDS = ("session_id", "timestamp", "response_hash", "report_hash", "parent_hmac", "hmac")


def made() -> tuple[Memory, dict[str, WindowSeal]]:
    journal = Memory()
    return journal, diamond(journal)


def test_a_graph_of_windows_verifies_and_so_does_its_trail() -> None:
    journal, _ = made()
    assert window_seals.verify_seals(journal.seals(SESSION), KEY) is ChainIntegrity.VALID
    trail = journal.check()
    assert (trail.windows, trail.sessions, trail.state.integrity) == (7, 1, ChainIntegrity.VALID)


def test_siblings_share_number_and_parent_and_not_their_hmac() -> None:
    _, seals = made()
    siblings = [seals[name] for name in ("left", "middle", "right")]
    assert {one.window_number for one in siblings} == {2}
    assert {one.parent_hmac for one in siblings} == {seals["root"].hmac}
    assert len({one.hmac for one in siblings}) == 3


def test_the_parent_field_of_a_fan_in_is_the_sorted_hmacs() -> None:
    _, seals = made()
    joined = seals["joined"]
    parents = sorted(seals[name].hmac for name in ("right", "deeper", "middle"))
    assert joined.parent_hmac == "|".join(parents)
    assert list(window_seals.parents_of(joined)) == parents
    fields = (
        SESSION, "4", joined.timestamp, joined.response_hash, joined.report_hash, "|".join(parents)
    )  # fmt: skip
    wanted = hmac.new(bytes(KEY), "␟".join(fields).encode(), hashlib.sha256).hexdigest()
    assert joined.hmac == f"sha256:{wanted}"


def test_without_parents_the_next_window_follows_the_last_one() -> None:
    journal, seals = made()
    assert seals["next"].parent_hmac == seals["joined"].hmac
    assert journal.last_seal(SESSION) == seals["next"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_field_of_any_window_breaks_the_chain_there_or_before(field: str) -> None:
    journal, _ = made()
    seals = journal.seals(SESSION)
    for place, one in enumerate(seals):
        changed = [*seals]
        changed[place] = one.model_copy(update={field: getattr(one, field) + "0"})
        assert window_seals.first_break(changed, KEY) == place


def test_a_window_of_another_number_breaks_the_chain() -> None:
    journal, _ = made()
    seals = journal.seals(SESSION)
    for place, one in enumerate(seals):
        for number in (one.window_number - 1, one.window_number + 1):
            changed = [*seals]
            changed[place] = one.model_copy(update={"window_number": number})
            found = window_seals.first_break(changed, KEY)
            assert found is not None and found <= place + 1


def test_a_window_that_is_followed_cannot_be_left_out() -> None:
    journal, seals = made()
    every = journal.seals(SESSION)
    for name in ("left", "middle", "right", "deeper", "joined"):
        rest = [one for one in every if one != seals[name]]
        assert window_seals.first_break(rest, KEY) is not None, name
        with pytest.raises(ChainBroken):
            journal.check(seals=rest)


def test_a_sibling_that_nobody_follows_is_missed_by_the_trail() -> None:
    """The chain of HMACs alone cannot know it; its event does."""
    journal = Memory()
    root = window(journal, "root", 1)
    for name in ("left", "right"):
        window(journal, name, 2, [root])
    rest = [one for one in journal.seals(SESSION) if one.window_id != "crp_win_right"]
    assert window_seals.first_break(rest, KEY) is None
    with pytest.raises(ChainBroken, match="no seal of its own") as broken:
        journal.check(seals=rest)
    assert broken.value.index == 5


def test_a_copy_of_a_seal_under_another_id_is_found() -> None:
    journal, seals = made()
    copy = seals["left"].model_copy(update={"window_id": "crp_win_more"})
    every = sorted(
        [*journal.seals(SESSION), copy], key=lambda one: (one.window_number, one.window_id)
    )
    assert window_seals.first_break(every, KEY) == every.index(copy) == 3


def test_parents_in_another_order_or_twice_are_no_fan_in() -> None:
    journal, seals = made()
    joined = seals["joined"]
    several = window_seals.parents_of(joined)
    for parents in (several[::-1], (*several, several[0]), (several[0], several[0])):
        forged = _sealed_again(joined, "|".join(parents))
        every = [forged if one == joined else one for one in journal.seals(SESSION)]
        assert window_seals.first_break(every, KEY) == 5


def test_a_window_cannot_follow_itself_its_like_or_what_comes_later() -> None:
    journal, seals = made()
    for name, parent in (("left", "right"), ("deeper", "joined"), ("right", "deeper")):
        forged = _sealed_again(seals[name], seals[parent].hmac)
        every = [forged if one == seals[name] else one for one in journal.seals(SESSION)]
        found = window_seals.first_break(every, KEY)
        assert found is not None and every[found].window_number <= seals[name].window_number


def test_there_is_one_root() -> None:
    journal, seals = made()
    second = _sealed_again(seals["root"].model_copy(update={"window_id": "crp_win_2"}), "")
    second = second.model_copy(update={"timestamp": "t"})
    second = _sealed_again(second, "")
    rest = journal.seals(SESSION)
    assert window_seals.first_break([rest[0], second, *rest[1:]], KEY) == 1
    orphan = _sealed_again(seals["left"], "")
    assert window_seals.first_break([rest[0], orphan], KEY) == 1


@pytest.mark.parametrize("first", range(1, 7))
def test_a_chain_from_the_middle_verifies(first: int) -> None:
    journal, _ = made()
    seals = journal.seals(SESSION)
    lowest = seals[first].window_number
    rest = [one for one in seals if one.window_number >= lowest]
    wanted = ChainIntegrity.VALID if lowest == 1 else ChainIntegrity.PARTIAL
    assert window_seals.verify_seals(rest, KEY) is wanted


def test_from_the_middle_a_window_still_follows_one_that_is_there() -> None:
    journal = Memory()
    root = window(journal, "root", 1)
    window(journal, "second", 2)
    window(journal, "third", 3, [root])
    second, third = journal.seals(SESSION)[1:]
    assert window_seals.verify_seals([*journal.seals(SESSION)], KEY) is ChainIntegrity.VALID
    assert window_seals.verify_seals([second, third], KEY) is ChainIntegrity.BROKEN


@pytest.mark.parametrize(
    ("number", "parents", "said"),
    [
        (1, ["root"], "next one is 6; allowed numbers begin with 2"),
        (7, ["root"], "next one is 6"),
        (4, ["joined"], "next one is 6"),
        (3, ["left", "deeper"], "next one is 6"),
        (6, [], "name the parents"),
        (6, ["sha256:0"], "no window with HMAC"),
        (6, None, None),
        (5, None, "next one is 6"),
    ],
)
def test_where_a_window_may_be_sealed(number: int, parents, said: str | None) -> None:
    journal, seals = made()
    chosen = None if parents is None else [seals[p] if p in seals else _Like(p) for p in parents]
    if said is None:
        window(journal, "new", number, chosen)
        assert window_seals.verify_seals(journal.seals(SESSION), KEY) is ChainIntegrity.VALID
        return
    with pytest.raises(StoreError, match=said):
        window(journal, "new", number, chosen)
    assert len(journal.sealed) == 7 and journal.check().windows == 7


def test_a_late_sibling_and_a_branch_keep_the_chain_whole() -> None:
    journal, seals = made()
    window(journal, "late", 2, [seals["root"]])
    window(journal, "branch", 6, [seals["root"]])
    window(journal, "among", 4, [seals["deeper"]])
    assert window_seals.verify_seals(journal.seals(SESSION), KEY) is ChainIntegrity.VALID
    assert journal.check().windows == 10


def test_an_id_is_sealed_once_in_a_session() -> None:
    journal, seals = made()
    with pytest.raises(StoreError, match="already has a window"):
        window(journal, "left", 3, [seals["root"]])


@pytest.mark.parametrize("kind", [MemoryStore, SqliteStore])
def test_a_store_keeps_a_graph_of_windows_and_its_trail(kind, tmp_path: Path) -> None:
    journal, _ = made()
    with closing(SqliteStore(tmp_path / "kb") if kind is SqliteStore else MemoryStore()) as store:
        with store.begin(TENANT) as transaction:
            transaction.journal.append(journal.written)
            for one in journal.sealed:
                transaction.journal.seal(one)
        with store.begin(TENANT) as transaction:
            assert transaction.journal.seals(SESSION) == journal.seals(SESSION)
            assert transaction.journal.last_seal(SESSION) == journal.last_seal(SESSION)
            kept = {
                "events": list(transaction.journal.events()),
                "seals": list(transaction.journal.all_seals()),
            }
            assert journal.check(**kept) == journal.check()
            with pytest.raises(StoreError, match="already has a window"):
                transaction.journal.seal(journal.sealed[2])


@given(data=st.data())
def test_any_graph_is_whole_and_misses_what_is_followed(data: st.DataObject) -> None:
    journal = Memory()
    every = [window(journal, "w0", 1)]
    for name in range(1, data.draw(st.integers(1, 9))):
        followed = data.draw(
            st.lists(st.sampled_from(every), min_size=1, max_size=3, unique_by=id), label="parents"
        )
        lowest = 1 + max(one.window_number for one in followed)
        highest = 1 + max(one.window_number for one in every)
        number = data.draw(st.integers(lowest, highest), label="number")
        every.append(window(journal, f"w{name}", number, followed))
    seals = journal.seals(SESSION)
    assert window_seals.first_break(seals, KEY) is None
    assert journal.check().windows == len(every)
    gone = data.draw(st.sampled_from(seals), label="gone")
    followed_by = [one for one in seals if gone.hmac in window_seals.parents_of(one)]
    rest = [one for one in seals if one is not gone]
    if followed_by and gone.window_number > 1:
        assert window_seals.first_break(rest, KEY) is not None
    with pytest.raises(ChainBroken):
        journal.check(seals=rest)


class _Like:
    """Something with an HMAC that nobody sealed."""

    def __init__(self, hmac: str) -> None:
        self.hmac = hmac


def _sealed_again(one: WindowSeal, parent: str) -> WindowSeal:
    """A seal as whoever has the key would make it with another parent field."""
    return one.model_copy(
        update={
            "parent_hmac": parent,
            "hmac": window_hmac(
                KEY,
                session_id=one.session_id,
                window_number=one.window_number,
                timestamp=one.timestamp,
                response_hash=one.response_hash,
                report_hash=one.report_hash,
                parent_hmac=parent,
            ),
        }
    )
