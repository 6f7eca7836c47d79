"""Laws of compaction over random histories with parallel tool calls."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.compaction.history import HEAD, is_summary, make_ids
from crp_integrations.governance.compaction.json_data import read_text
from crp_integrations.governance.compaction.pipeline import SAME
from crp_integrations.governance.compaction.records import CompactHistory
from crp_integrations.governance.compaction.text_pieces import find_protected
from crp_integrations.governance.settings import CompactionSettings
from crp_integrations.messages import Message
from tests.doubles import NOON, WordCounter
from tests.governance.agent_histories import Shelf, history

COUNTER = WordCounter()
SHARES = (0.05, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0, 1.3)
# Histories, and compactions of each: a thousand in all, of texts that are read once.
CASES, WAYS = 80, 5
_HANDLE = re.compile(r"\(kept whole as \S+\)")
_PART = re.compile(r"(.+)#(\d+)-(\d+)")

histories = st.tuples(
    st.integers(0, 10**9), st.sampled_from(SHARES), st.booleans(), st.sampled_from((5, 25, 200))
)


def compacted(
    seed: int, share: float, kept: bool, most: int
) -> tuple[list[Message], int, CompactHistory]:
    messages = history(seed)
    budget = max(1, int(COUNTER.count_messages(messages) * share))
    chosen = CompactionSettings(max_items=most, offload_tokens=60, extract_tokens=20)
    compactor = AutoCompactor(COUNTER, chosen, artifacts=Shelf() if kept else None)
    return messages, budget, compactor.compact_history(messages, budget, now=NOON)


def no_orphan(messages: tuple[Message, ...]) -> None:
    """Every result stands behind the one call it answers; every call but the last has its result."""
    waiting: dict[str, bool] = {}
    for message in messages:
        if message.role == "tool":
            assert waiting.pop(message.tool_call_id or "", False)
        else:
            assert not waiting
            waiting = {call.id: True for call in message.tool_calls}
            assert len(waiting) == len(message.tool_calls)


def reported(compact: CompactHistory, before: dict[str, str]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for report in compact.account.reports:
        for name in report.dropped_item_ids:
            part = None if name in before else _PART.fullmatch(name)
            if part is None:
                found.setdefault(name, []).append((0, len(before[name])))
            else:
                found.setdefault(part[1], []).append((int(part[2]), int(part[3])))
    return found


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d[\d.,]*\d|\d", text))


@pytest.mark.requirement("SUM-compression-6")
@pytest.mark.requirement("SUM-contract-6")
def test_hundreds_of_compactions() -> None:
    # Plain numbers, since drawing a case through hypothesis takes longer than to check it.
    for number in range(CASES):
        chance = Random(number)
        seed = chance.randrange(10**9)
        for share in chance.sample(SHARES, WAYS):
            accounted(seed, share, chance.random() < 0.5, chance.choice((5, 25, 200)))


def accounted(*case: Any) -> None:
    messages, budget, compact = compacted(*case)
    account = compact.account
    before = dict(zip(make_ids(messages), (m.content for m in messages), strict=True))
    after = dict(zip(compact.ids, compact.messages, strict=True))
    # No orphan, and calls are as they were.
    no_orphan(compact.messages)
    calls = {call for message in messages for call in message.tool_calls}
    assert {call for message in compact.messages for call in message.tool_calls} <= calls
    # Never above the budget, or it says so.
    counted = COUNTER.count_messages(compact.messages)
    assert counted == account.tokens_after
    assert account.fits == (counted <= budget)
    assert account.fits or account.why_not
    if not account.triggers:
        assert compact.messages == tuple(messages)
        assert account.reports == ()
        return
    # Nothing goes unreported, word by word.
    gone = reported(compact, before)
    assert len({report.reason for report in account.reports}) == len(account.reports)
    targeted = {
        c.item_id: c.spans for s in account.summaries if s.level == "targeted" for c in s.citations
    }
    for name, text in before.items():
        if name in after and after[name].content == text:
            assert name not in gone
            continue
        shown = [*gone.get(name, ()), *(targeted.get(name, ()) if name in after else ())]
        assert gone.get(name)
        told = bytearray(len(text))
        for start, end in shown:
            told[start:end] = b"x" * (end - start)
        assert not any(c.isalnum() and not t for c, t in zip(text, told, strict=True))
    # No number that is not in a source; nothing but whole quotations.
    everything = "\n".join(before.values()) + json.dumps([c.arguments for c in calls])
    known = numbers(everything) | {n for call in calls for n in numbers(call.arguments)}
    for name, message in after.items():
        if name in before:
            said = _HANDLE.sub("", message.content)
        else:
            assert is_summary(message)
            said = re.sub(r"(?m)^\[\d+\] ?", "", _HANDLE.sub("", message.content))
            said = re.sub(r"(?m)^\[\d+\]\s", "", said.removeprefix(HEAD))
        for name_of_tool in {call.name for call in calls}:
            said = said.replace(name_of_tool, "")
        assert numbers(said) <= known
    # System messages and the last question are untouched.
    firm = [m for m in messages if m.role == "system"]
    firm += [m for m in messages if m.role == "user"][-1:]
    assert all(message in compact.messages for message in firm)


@settings(max_examples=40, deadline=None)
@given(histories)
def test_what_is_protected_is_shown_byte_for_byte_or_not_at_all(
    case: tuple[int, float, bool, int],
) -> None:
    messages, _, compact = compacted(*case)
    before = dict(zip(make_ids(messages), (m.content for m in messages), strict=True))
    after = dict(zip(compact.ids, compact.messages, strict=True))
    for summary in compact.account.summaries:
        for citation in summary.citations:
            text = before[citation.item_id]
            if read_text(text).kind in ("search", "data"):
                continue
            for start, end in citation.spans:
                # No edge of what is quoted runs through something protected.
                for span in find_protected(text):
                    assert not span.start < start < span.end
                    assert not span.start < end < span.end
                if summary.level == "targeted":
                    assert text[start:end] in after[citation.item_id].content
                else:
                    assert text[start:end] in summary.text


@settings(max_examples=40, deadline=None)
@given(histories)
def test_data_stays_data_with_its_numbers_as_they_were_written(
    case: tuple[int, float, bool, int],
) -> None:
    messages, _, compact = compacted(*case)
    before = dict(zip(make_ids(messages), messages, strict=True))
    for name, message in zip(compact.ids, compact.messages, strict=True):
        source = before.get(name)
        if source is None or source == message or message.content == SAME:
            continue
        text = _HANDLE.sub("", message.content).strip()
        if read_text(source.content).kind in ("search", "data") and text not in ("", "…"):
            json.loads(text)
            written = set(re.findall(r"(?<![\w.\"])-?\d+(?:\.\d+)?(?![\w.])", source.content))
            assert set(re.findall(r"(?<![\w.\"])-?\d+(?:\.\d+)?(?![\w.])", text)) <= written


@settings(max_examples=40, deadline=None)
@given(histories)
@example(case=(21, 0.2, True, 5))
def test_compaction_is_deterministic_and_rests_when_nothing_triggers(
    case: tuple[int, float, bool, int],
) -> None:
    _, budget, compact = compacted(*case)
    assert compacted(*case)[2] == compact
    again = AutoCompactor(COUNTER, CompactionSettings(max_items=case[3])).compact_history(
        compact.messages, budget, now=NOON
    )
    if not again.account.triggers:
        assert again.messages == compact.messages
    if "items" not in again.account.triggers:
        most = max(compact.account.tokens_after, int(0.8 * budget))
        assert again.account.tokens_after <= most


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(SHARES))
def test_switched_off_it_changes_nothing(seed: int, share: float) -> None:
    messages = history(seed)
    total = COUNTER.count_messages(messages)
    off = AutoCompactor(COUNTER, CompactionSettings(enabled=False))
    compact = off.compact_history(messages, max(1, int(total * share)), now=NOON)
    assert compact.messages == tuple(messages)
    assert compact.account.tokens_before == compact.account.tokens_after == total
    assert compact.account.triggers == ()


@settings(max_examples=40, deadline=None)
@given(histories)
def test_what_each_reason_saves_adds_up(case: tuple[int, float, bool, int]) -> None:
    _, _, compact = compacted(*case)
    account = compact.account
    saved = sum(report.token_savings for report in account.reports)
    if "items" not in account.triggers:
        assert saved == account.tokens_before - account.tokens_after
