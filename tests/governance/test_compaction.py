"""Compaction of histories: triggers, order of the methods, summaries, blobs, verification."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from crp_integrations.errors import CompactionRefused, ConfigError, RequestError
from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.compaction.history import HEAD, make_ids
from crp_integrations.governance.compaction.json_data import read_text
from crp_integrations.governance.compaction.pipeline import SAME
from crp_integrations.governance.compaction.stages import Relevance
from crp_integrations.governance.compaction.verification import check_history, find_missing
from crp_integrations.governance.context_pack import DropReport
from crp_integrations.governance.settings import CompactionSettings
from crp_integrations.messages import Message, ToolCall
from tests.doubles import NOON, WordCounter
from tests.governance.agent_histories import Shelf

COUNTER = WordCounter()
FILLER = "The weather over the bay was mild and nothing else of note was said on that day."


def call(number: int, text: str, *, name: str = "search") -> list[Message]:
    one = ToolCall(id=f"c{number}", name=name, arguments='{"q": "crane"}')
    return [
        Message(role="assistant", tool_calls=(one,)),
        Message(role="tool", content=text, tool_call_id=one.id, name=name),
    ]


def long_history(rounds: int = 12) -> list[Message]:
    """A question at the end that one of the results answers."""
    messages = [Message(role="system", content="Answer from the books.")]
    for number in range(rounds):
        messages.append(Message(role="user", content=f"Look at book {number}."))
        text = (
            f"Crane {number} lifts {number + 11} tons since 2024-03-{number + 1:02d}. {FILLER * 3}"
        )
        messages += call(number, text)
        messages.append(Message(role="assistant", content=f"I have read book {number}. {FILLER}"))
    return [*messages, Message(role="user", content="How many tons does crane 7 lift?")]


def tokens(messages: Sequence[Message]) -> int:
    return COUNTER.count_messages(messages)


def compact(messages: Sequence[Message], budget: int, **settings: Any) -> Any:
    return AutoCompactor(COUNTER, CompactionSettings(**settings)).compact_history(
        messages, budget, now=NOON
    )


# --- triggers ------------------------------------------------------------------------------------


@pytest.mark.requirement("SUM-compression-1")
def test_it_starts_above_eighty_percent_of_the_budget_and_not_at_it() -> None:
    messages = long_history()
    total = tokens(messages)
    # The whole working context is looked at, before anything is packed.
    at = compact(messages, total * 5 // 4 + 1)
    assert total <= 0.8 * at.account.budget
    assert at.account.triggers == ()
    assert at.messages == tuple(messages)
    above = compact(messages, total * 5 // 4 - 1)
    assert total > 0.8 * above.account.budget
    assert above.account.triggers == ("budget",)
    assert above.account.tokens_after <= 0.6 * above.account.budget


@pytest.mark.requirement("SUM-compression-1")
def test_definitions_of_tools_count() -> None:
    messages = long_history()
    tool = {"type": "function", "function": {"name": "search", "description": FILLER * 20}}
    total = tokens(messages)
    compactor = AutoCompactor(COUNTER)
    budget = total * 5 // 4 + 1
    assert compactor.compact_history(messages, budget, now=NOON).account.triggers == ()
    made = compactor.compact_history(messages, budget, now=NOON, tools=[tool])
    assert made.account.triggers == ("budget",)
    assert tokens(made.messages) + COUNTER.count_tools([tool]) == made.account.tokens_after


@pytest.mark.requirement("SUM-compression-2")
@pytest.mark.parametrize("most", [10, 25, 48])
def test_it_starts_above_so_many_messages(most: int) -> None:
    messages = long_history()
    assert len(messages) == 50
    assert compact(messages, 10**6, max_items=len(messages)).account.triggers == ()
    made = compact(messages, 10**6, max_items=most)
    assert made.account.triggers == ("items",)
    assert len(made.messages) <= most


@pytest.mark.requirement("SUM-compression-3")
def test_it_starts_after_a_tool_call_and_looks_at_its_results_alone() -> None:
    big = " ".join(f"Berth {n} holds {n + 3} boats. {FILLER}" for n in range(60))
    messages = [*long_history(2), *call(99, big)]
    budget = tokens(messages) * 2
    made = compact(messages, budget)
    assert made.account.triggers == ("tool-call",)
    assert made.messages[:-1] == tuple(messages[:-1])
    assert COUNTER.count(made.messages[-1].content) <= 0.25 * budget
    assert [report.reason for report in made.account.reports] == ["targeted"]
    # A small result is left alone, and so is a history that goes on after it.
    small = compact([*long_history(2), *call(99, "Nothing was found.")], budget)
    assert small.account.triggers == ("tool-call",)
    assert small.account.reports == ()
    assert (
        compact([*messages, Message(role="assistant", content="Done.")], budget).account.triggers
        == ()
    )


@pytest.mark.requirement("SUM-rollout-1")
def test_one_switch_turns_it_off_and_the_baseline_is_still_counted() -> None:
    messages = long_history()
    total = tokens(messages)
    off = compact(messages, total // 4, enabled=False)
    assert off.messages == tuple(messages)
    assert (off.account.tokens_before, off.account.tokens_after) == (total, total)
    assert not off.account.fits
    assert off.account.why_not
    on = compact(messages, total // 4)
    assert on.account.tokens_before == total
    assert on.account.tokens_after < total


def test_settings_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(ConfigError, match="target_share ≤ trigger_share"):
        CompactionSettings(trigger_share=0.5, target_share=0.6)
    with pytest.raises(RequestError, match="budget of 0"):
        compact(long_history(1), 0)


# --- the methods -----------------------------------------------------------------------------------


def test_an_earlier_result_that_came_again_gives_way_to_a_note() -> None:
    text = "Crane 7 lifts 18 tons. " + FILLER * 4
    messages = [Message(role="user", content="Crane 7?"), *call(1, text), *call(2, text)]
    messages += [
        Message(role="assistant", content="It lifts 18 tons."),
        Message(role="user", content="Sure?"),
    ]
    made = compact(messages, tokens(messages), target_share=0.8)
    assert made.messages[2].content == SAME
    assert made.messages[4].content == text
    assert [report.reason for report in made.account.reports] == ["duplicate"]


def test_a_round_that_says_nothing_to_the_question_goes_first_and_whole() -> None:
    messages = [Message(role="user", content="Read.")]
    messages += call(1, "Crane 7 lifts 18 tons in calm weather. " * 3)
    messages += call(2, "Gulls nested upon the old lighthouse during spring. " * 3)
    messages += [Message(role="user", content="How many tons does crane 7 lift?")]
    made = compact(messages, tokens(messages), keep_recent=0)
    (report,) = made.account.reports
    assert report.reason == "irrelevant"
    assert report.dropped_item_ids == make_ids(messages)[3:5]
    assert all("Gulls" not in message.content for message in made.messages)


@pytest.mark.requirement("SUM-compression-4")
@pytest.mark.requirement("SUM-compress-10")
def test_the_eighty_percent_trigger_gives_a_summary_in_levels_with_sources_and_reports() -> None:
    messages = long_history(30)
    made = compact(messages, tokens(messages) // 3, prune_to=1.0, drop_below=0.0)
    assert "budget" in made.account.triggers
    by_level: dict[str, list[Any]] = {}
    for summary in made.account.summaries:
        by_level.setdefault(summary.level, []).append(summary)
    (session,) = by_level["session"]
    clusters, sources = by_level["cluster"], by_level["source"]
    assert set(session.children) == {one.id for one in clusters}
    assert {child for one in clusters for child in one.children} == {one.id for one in sources}
    assert all(len(one.citations) <= 1 for one in sources)
    # Each level quotes what the one below has.
    spans = {
        level: {
            (c.item_id, place)
            for one in ones
            for c in one.citations
            for a, b in c.spans
            for place in range(a, b)
        }
        for level, ones in by_level.items()
    }
    assert spans["session"] < spans["cluster"] <= spans["source"]
    # The session's is shown, links each line to a message, and keeps what was asked for.
    (shown,) = [m for m in made.messages if m.content.startswith(HEAD)]
    assert shown.content == session.text
    assert made.ids[made.messages.index(shown)] == session.id
    contents = dict(zip(make_ids(messages), (m.content for m in messages), strict=True))
    for citation in session.citations:
        assert f"[{citation.mark}] " in session.text
        for start, end in citation.spans:
            assert contents[citation.item_id][start:end] in session.text
    assert "Crane 7 lifts 18 tons since 2024-03-08." in session.text
    named = {name for report in made.account.reports for name in report.dropped_item_ids}
    assert {name for name in contents if name not in made.ids} <= named
    assert len({report.id for report in made.account.reports}) == len(made.account.reports)


def test_large_results_are_kept_elsewhere_and_shown_by_a_handle_with_an_extract() -> None:
    big = " ".join(f"Berth {n} holds {n + 3} boats. {FILLER}" for n in range(80))
    big += " Crane 7 lifts 18 tons."
    messages = [Message(role="user", content="Read."), *call(1, big)]
    messages += [
        Message(role="assistant", content="Read."),
        Message(role="user", content="How many tons does crane 7 lift?"),
    ]
    shelf = Shelf()
    chosen = CompactionSettings(keep_recent=0, drop_below=0.0)
    made = AutoCompactor(COUNTER, chosen, artifacts=shelf).compact_history(
        messages, tokens(messages), now=NOON
    )
    (ref,) = made.account.artifacts
    assert shelf.texts[ref.ref] == big
    assert shelf.sources[ref.ref] == (make_ids(messages)[2],)
    shown = made.messages[2].content
    assert shown.startswith(f"(kept whole as {ref.ref})\n")
    assert "Crane 7 lifts 18 tons." in shown
    assert COUNTER.count(shown) < 200
    assert [report.reason for report in made.account.reports] == ["offloaded"]
    # The history can be compacted again, handle and all.
    assert compact(made.messages, 60).messages


# --- blobs -----------------------------------------------------------------------------------------

LOG = "\n".join(
    [f"2026-05-01 12:00:{n:02d} INFO heartbeat {n} of pump {n % 3}" for n in range(40)]
    + [
        "2026-05-01 12:01:03 ERROR crane 7 stopped at 18 tons",
        "  File 'hoist.py', line 41, in lift",
    ]
    + [f"2026-05-01 12:02:{n:02d} DEBUG idle" for n in range(40)]
)
HITS = json.dumps(
    {
        "took": 12,
        "results": [
            {
                "title": f"Report {n}",
                "url": f"https://example.org/{n}",
                "snippet": " ".join(
                    [FILLER] * 3 + [f"Crane {n} lifts {n + 11} tons."] + [FILLER] * 3
                ),
                "raw_html": "<p>" + "x " * 80 + "</p>",
                "score": 0.1 * n,
            }
            for n in range(9)
        ],
    }
)
ROWS = json.dumps(
    {
        "status": "partial",
        "trace": "y " * 200,
        "rows": [{"id": f"crane-{n}", "tons": 1.50 * n, "note": FILLER} for n in range(30)],
    }
)


@pytest.mark.requirement("SUM-compression-5")
@pytest.mark.requirement("SUM-compress-11")
@pytest.mark.parametrize(
    ("text", "kind", "wanted", "field"),
    [
        (LOG, "log", "ERROR crane 7 stopped at 18 tons\n  File 'hoist.py', line 41", "lines.info"),
        (HITS, "search", '"Crane 7 lifts 18 tons', "results[].raw_html"),
        (ROWS, "data", '"crane-7"', "trace"),
    ],
)
def test_each_kind_of_blob_has_its_own_summary_with_citations_and_dropped_fields(
    text: str, kind: str, wanted: str, field: str
) -> None:
    question = Message(role="user", content="How many tons does crane 7 lift?")
    messages = [question, *call(1, text)]
    made = compact(messages, tokens(messages), blob_share=0.3)
    (summary,) = [one for one in made.account.summaries if one.level == "targeted"]
    shown = made.messages[-1].content
    assert COUNTER.count(shown) <= 0.3 * tokens(messages)
    assert (summary.kind, summary.text) == (kind, shown)
    assert wanted.replace('"Crane', "Crane") in shown
    assert field in summary.dropped_fields
    (citation,) = summary.citations
    assert citation.item_id == made.ids[-1]
    for start, end in citation.spans:
        assert text[start:end] in shown
    if kind != "log":
        json.loads(shown)


def test_a_hit_keeps_its_name_and_address_with_what_is_quoted_of_it() -> None:
    question = Message(role="user", content="How many tons does crane 7 lift?")
    messages = [question, *call(1, HITS)]
    made = compact(messages, tokens(messages), blob_share=0.2)
    hits = [
        one for one in json.loads(made.messages[-1].content)["results"] if isinstance(one, dict)
    ]
    assert any("Crane 7 lifts 18 tons." in one.get("snippet", "") for one in hits)
    for hit in hits:
        if "snippet" in hit:
            assert hit["title"]
            assert hit["url"]


@pytest.mark.parametrize(
    "text",
    ["{", "[1, 2", '{"a": 1} trailing', "{'a': 1}", "[01]", '{"a": "\n"}', "[" * 80 + "]" * 80],
)
def test_what_is_no_json_is_read_as_prose(text: str) -> None:
    assert read_text(text).kind == "prose"


@pytest.mark.parametrize(
    "text", ['{"a": [1e5, 1.50, "\\u00e9", null, {}]}', "[]", '{"a":{"b":[{"c":1}]}}']
)
def test_json_is_read_with_every_value_as_it_stands(text: str) -> None:
    reading = read_text(text)
    assert reading.kind == "data"
    json.loads(reading.cut([0]).text) if reading.pieces else None
    for number, piece in enumerate(reading.pieces):
        assert text[piece.start : piece.end] in reading.cut([number]).text


def test_scores_follow_the_question() -> None:
    relevance = Relevance("How many tons does crane 7 lift?", [LOG, HITS, FILLER], 0.05)
    assert max(relevance.of(0), relevance.of(1)) > relevance.of(2)
    pieces = relevance.reading(0).pieces
    best = max(range(len(pieces)), key=lambda n: relevance.pieces(0)[n])
    assert "crane 7" in LOG[pieces[best].start : pieces[best].end]


# --- calls and results -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([Message(role="tool", content="x", tool_call_id="c1")], "makes no such call"),
        (
            [
                *call(1, "x"),
                Message(role="tool", content="y", tool_call_id="c1"),
                Message(role="user"),
            ],
            "two results",
        ),
        ([call(1, "x")[0], Message(role="user", content="go on")], "has no result"),
        ([call(1, "x")[0], call(2, "x")[1]], "makes no such call"),
    ],
)
def test_a_history_that_is_broken_already_is_refused_by_name(
    messages: list[Message], said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        compact(messages, 1000)


def test_a_call_that_waits_for_results_may_end_a_history() -> None:
    messages = [*long_history(8), *call(99, "x")[:1]]
    made = compact(messages, tokens(messages) // 2)
    assert made.messages[-1] == messages[-1]


def test_what_cannot_fit_is_said_with_its_reason() -> None:
    messages = [
        Message(role="system", content=FILLER * 10),
        Message(role="user", content=FILLER * 10),
    ]
    made = compact(messages, 50)
    assert made.messages == tuple(messages)
    assert not made.account.fits
    assert "2 items that must stay" in made.account.why_not


def test_ids_of_the_caller_are_used_and_checked() -> None:
    messages = long_history(6)
    names = [f"lc-{n}" for n in range(len(messages))]
    compactor = AutoCompactor(COUNTER)
    made = compactor.compact_history(messages, tokens(messages) // 2, now=NOON, ids=names)
    named = {name.partition("#")[0] for r in made.account.reports for name in r.dropped_item_ids}
    assert named <= set(names)
    with pytest.raises(RequestError, match="ids are given for"):
        compactor.compact_history(messages, 100, now=NOON, ids=names[1:])
    with pytest.raises(RequestError, match="names two"):
        compactor.compact_history(messages, 100, now=NOON, ids=["a"] * len(messages))


# --- what refuses a result -----------------------------------------------------------------------


def test_figures_may_be_written_otherwise_and_ids_may_not() -> None:
    source = 'It cost $4,200,000 on 12 March 2024, order PX-0042, and he said "stop".'
    assert not list(find_missing("It cost $4.2 million in March 2024.", source))
    assert not list(find_missing('PX-0042, "stop"', source))
    assert list(find_missing("It cost $4.3 million.", source))
    assert list(find_missing("PX-004", source))
    assert list(find_missing("42 crates", source))


@pytest.mark.requirement("SUM-compress-12")
@pytest.mark.requirement("SUM-fail-5")
def test_a_result_that_hides_or_invents_something_is_refused() -> None:
    messages = long_history(30)
    made = compact(messages, tokens(messages) // 3, prune_to=0.5, drop_below=0.0)
    check_history(messages, made)
    account = made.account

    def refused(said: str, **changes: Any) -> None:
        with pytest.raises(CompactionRefused, match=said):
            check_history(messages, made.changed(**changes))

    # An unlisted drop: whole reports gone, one id gone, and one part gone.
    refused("no report names", account=account.model_copy(update={"reports": account.reports[1:]}))
    for place, report in enumerate(account.reports):
        for left in (report.dropped_item_ids[1:], report.dropped_item_ids[:-1]):
            less = DropReport.of(report.reason, left, report.token_savings, NOON)
            reports = (*account.reports[:place], less, *account.reports[place + 1 :])
            refused("no report names", account=account.model_copy(update={"reports": reports}))
    strange = DropReport.of("budget", ["msg:nobody"], 0, NOON)
    refused(
        "is not an item",
        account=account.model_copy(update={"reports": (*account.reports, strange)}),
    )
    still = DropReport.of("budget", [made.ids[0]], 0, NOON)
    refused(
        "still there|shown whole",
        account=account.model_copy(update={"reports": (*account.reports, still)}),
    )
    # A figure without a source, and a summary in other words or without citations.
    place = next(n for n, m in enumerate(made.messages) if m.content.startswith(HEAD))
    session = next(s for s in account.summaries if s.id == made.ids[place])
    others = tuple(s for s in account.summaries if s.id != session.id)

    def with_summary(**fields: Any) -> dict[str, Any]:
        changed = session.changed(**fields)
        said = made.messages[place].model_copy(update={"content": changed.text})
        return {
            "messages": (*made.messages[:place], said, *made.messages[place + 1 :]),
            "account": account.model_copy(update={"summaries": (*others, changed)}),
        }

    refused("without a source", **with_summary(text=session.text + " It lifts 977 tons."))
    refused("cites nothing", **with_summary(citations=()))
    wrong = session.citations[0].model_copy(update={"item_id": "msg:nobody"})
    refused("is not there", **with_summary(citations=(wrong, *session.citations[1:])))
    refused("other words", messages=with_summary(text=session.text + " So.")["messages"])
    # A text altered in its place, an orphan, another order.
    cut = next(n for n, m in enumerate(made.messages) if m.role == "tool" and "…" in m.content)
    altered = made.messages[cut].model_copy(
        update={"content": made.messages[cut].content + " Sure."}
    )
    refused("not its own", messages=(*made.messages[:cut], altered, *made.messages[cut + 1 :]))
    refused(
        "no result|no such call|no report",
        messages=(*made.messages[:cut], *made.messages[cut + 1 :]),
        ids=(*made.ids[:cut], *made.ids[cut + 1 :]),
    )
    refused("another order", messages=made.messages[::-1], ids=made.ids[::-1])


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("counter", "gpt-4o"),
        ("counter", None),
        ("settings", {"enabled": True}),
        ("artifacts", "artifacts/"),
    ],
)
def test_a_part_that_is_none_is_refused_before_anything_is_shortened(name: str, odd: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is .*; give "):
        AutoCompactor(**({"counter": COUNTER} | {name: odd}))


def test_what_is_no_history_no_budget_and_no_moment_is_named() -> None:
    compactor, history = AutoCompactor(COUNTER), long_history()
    odd: Any
    for odd in (history[0], "hello", None, {"role": "user"}):
        with pytest.raises(RequestError, match=r"messages is of type .*, wanted a list of them"):
            compactor.compact_history(odd, 100, now=NOON)
    odd = [history[0], {"role": "user", "content": "hello"}]
    with pytest.raises(RequestError, match="message 1 is of type dict; give a Message, or take"):
        compactor.compact_history(odd, 100, now=NOON)
    for odd in ("100", None, 10.5, True):
        with pytest.raises(RequestError, match=r"budget is of type .*, wanted whole tokens"):
            compactor.compact_history(history, odd, now=NOON)
    for odd in ("today", None, NOON.date()):
        with pytest.raises(RequestError, match=r"now is of type .*; give a datetime"):
            compactor.compact_history(history, 100, now=odd)
    with pytest.raises(RequestError, match="has no time zone; give it one"):
        compactor.compact_history(history, 100, now=NOON.replace(tzinfo=None))
    odd = "a pack"
    with pytest.raises(RequestError, match="pack is of type str; give a ContextPack"):
        compactor.compact(odd, 100, texts={}, now=NOON)
