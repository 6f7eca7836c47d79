"""`report.repair()`: corrections take the place of flagged claims, and nothing else changes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations import RequestError
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.repair import (
    CODE,
    EMPTY,
    FORM,
    NEEDED,
    NO_CORRECTION,
    UNFOUNDED,
    Repair,
    edited,
)
from crp_integrations.dpe.report_html import answer_html
from tests.dpe.judging import Case, claims_of, contradicted, supported

SHOP = [
    "The shop opens at 9:00 and closes at 18:30. Parking costs 5 euros for 2 hours. Ms Brand runs it."
]


def report(answer: str, fixes: dict[str, str | None], passages: list[str], quote: str) -> Report:
    """The report of a judge that finds the claims with some words wrong, with a correction each."""

    def rule(data: dict[str, Any]) -> dict[str, Any]:
        verdicts = []
        for number, text in claims_of(data):
            words = next((words for words in fixes if words in text), None)
            if words is None:
                verdicts.append(supported(number, (1, quote)))
                continue
            verdict = contradicted(number, (1, quote), wrong=words)
            verdicts.append(verdict if fixes[words] is None else {**verdict, "fix": fixes[words]})
        return {"id": data["id"], "claims": verdicts}

    return Case(answer, passages).judged(rule)


def repaired(answer: str, fixes: dict[str, str | None], passages: list[str] = SHOP) -> Repair:
    return report(answer, fixes, passages, passages[0].split(".")[0]).repair()


@pytest.mark.parametrize(
    ("answer", "fixes", "expected"),
    [
        # A correction without the sentence's stop, and with another first letter.
        (
            "It closes at **17:00**. Parking is there.",
            {"17:00": "it closes at **18:30**"},
            "It closes at **18:30**. Parking is there.",
        ),
        # Two wrong claims of a sentence.
        (
            "It opens at 8:00, and parking costs 7 euros.",
            {"8:00": "It opens at 9:00", "7 euros": "parking costs 5 euros."},
            "It opens at 9:00, and parking costs 5 euros.",
        ),
        # A stop before closing signs or a citation stays with them.
        ("**It closes at 17:00.** It opens.", {"17:00": "It closes at 18:30."}, "**It closes at 18:30.** It opens."),
        ("*It closes at 17:00.* It opens.", {"17:00": "It closes at 18:30."}, "*It closes at 18:30.* It opens."),
        ("(It closes at 17:00.) It opens.", {"17:00": "It closes at 18:30."}, "(It closes at 18:30.) It opens."),
        ('"It closes at 17:00." It opens.', {"17:00": "It closes at 18:30."}, '"It closes at 18:30." It opens.'),
        ("It opens. It closes at 17:00.[1]", {"17:00": "It closes at 18:30."}, "It opens. It closes at 18:30.[1]"),
        ("It opens. It closes at 17:00.[^1]", {"17:00": "It closes at 18:30"}, "It opens. It closes at 18:30.[^1]"),
        ("It opens. It closes at 17:00.¹", {"17:00": "It closes at 18:30."}, "It opens. It closes at 18:30.¹"),
        # A citation before the stop, in a row too.
        ("It closes at 17:00 [1]. It opens.", {"17:00": "It closes at 18:30."}, "It closes at 18:30 [1]. It opens."),
        ("It closes at 17:00 [1][^2]. It opens.", {"17:00": "It closes at 18:30"}, "It closes at 18:30 [1][^2]. It opens."),
        # What ends a claim in brackets is a citation, and stands within its closing marks.
        *(
            (f"It closes at 17:00 {tail}. It opens.", {"17:00": "It closes at 18:30."}, f"It closes at 18:30 {tail}. It opens.")
            for tail in ("[docs](http://x.org/a)", "[doc-3]", "[a1]", "[see source 1]", "(Miller, 2020)", "[1][a1]")
        ),
        *(
            (f"{a}It closes at 17:00 [1].{b} It opens.", {"17:00": f"{a}It closes at 18:30.{b}"}, f"{a}It closes at 18:30 [1].{b} It opens.")
            for a, b in ("“”", "«»", "‘’", ("**", "**"))
        ),
        # A note that stands in the claim is the claim's.
        *(
            (text.format(7), {"7": text.format(5)}, text.format(5))
            for text in ("Parking costs {} euros (each).", "Parking costs {} euros (before and after).", "Which: Parking costs {} euros.")
        ),
        ("Yes: it closes at 17:00.", {"17:00": "No: it closes at 18:30."}, "No: it closes at 18:30."),
        ("It closes at 17:00.", {"17:00": "Corrected: It closes at 18:30. (corrected)"}, "It closes at 18:30."),
        ("The dogs’ park isn’t open at 8:00.", {"8:00": "The dogs’ park is not open at 9:00."}, "The dogs’ park is not open at 9:00."),
        ("It closes at 17:00 (source 1).", {"17:00": "It closes at 18:30."}, "It closes at 18:30 (source 1)."),
        ("It closes at 17:00 [2].", {"17:00": "It closes at 18:30 [1]."}, "It closes at 18:30 [1]."),
        ("| a | b |\n|---|---|\n| shop | 17:00 [1] |", {"17:00": "| shop | 18:30 |"}, "| a | b |\n|---|---|\n| shop | 18:30 [1] |"),
        # The judge's note on its correction.
        ("It closes at 17:00. It opens.", {"17:00": "It closes at 18:30. (corrected)"}, "It closes at 18:30. It opens."),
        ("It closes at 17:00. It opens.", {"17:00": "It closes at 18:30 [fixed]."}, "It closes at 18:30. It opens."),
        ("It closes at 17:00. It opens.", {"17:00": "It closes at 18:30 – corrected"}, "It closes at 18:30. It opens."),
        ("It closes at 17:00. It opens.", {"17:00": "It closes at 18:30. Corrected."}, "It closes at 18:30. It opens."),
        ("It closes at 17:00. It opens.", {"17:00": "Corrected claim: It closes at 18:30."}, "It closes at 18:30. It opens."),
        ("It closes at 17:00. It opens.", {"17:00": "It closes at 18:30 (the shop)."}, "It closes at 18:30 (the shop). It opens."),
        # The number of a row.
        (
            "| n | what | at |\n|---|---|---|\n| 7 | shut | 17:00 |\n",
            {"17:00": "| 1 | shut | 18:30 |"},
            "| n | what | at |\n|---|---|---|\n| 7 | shut | 18:30 |\n",
        ),
        ("| n | at |\n|---|---|\n| 7 | shop |", {"7": "| 2 | shop |"}, "| n | at |\n|---|---|\n| 2 | shop |"),
        ("| n | b |\n|---|---|\n| 1 | 9:00 |\n| 2 | pool |", {"pool": ""}, "| n | b |\n|---|---|\n| 1 | 9:00 |"),
        # Line breaks of the answer stay.
        (
            "The shop opens at\n  8:00 each morning.",
            {"8:00": "The shop opens at 9:00 each morning."},
            "The shop opens at\n  9:00 each morning.",
        ),
        # A cell of a table, with and without the bars in the correction.
        (
            "| opens | closes |\n|---|---|\n|  9:00 | 17:00 |\n",
            {"17:00": "| 9:00 | 18:30 |"},
            "| opens | closes |\n|---|---|\n|  9:00 | 18:30 |\n",
        ),
        (
            "| opens | closes |\n|---|---|\n|  9:00 | 17:00 |\n",
            {"17:00": "9:00 | 18:30"},
            "| opens | closes |\n|---|---|\n|  9:00 | 18:30 |\n",
        ),
        # A leaf of JSON, alone and in a fence within a text.
        ('{"opens": "8:00", "euros": 5}', {"8:00": '"opens": "9:00"'}, '{"opens": "9:00", "euros": 5}'),
        (
            'Here:\n\n```json\n{\n  "euros": 7\n}\n```\n\nThat is it.',
            {"7": '"euros": 5'},
            'Here:\n\n```json\n{\n  "euros": 5\n}\n```\n\nThat is it.',
        ),
        # Blanks around a field's colon stay.
        ('{"opens":"8:00"}', {"8:00": '"opens": "9:00"'}, '{"opens":"9:00"}'),
        # A sentence that goes, in a paragraph, as a whole item, within an item, and as a row.
        ("It opens at 9:00. It has a pool. It shuts late.", {"pool": ""}, "It opens at 9:00. It shuts late."),
        ("It opens at 9:00. It has a pool.", {"pool": ""}, "It opens at 9:00."),
        ("It has a pool. It opens at 9:00.", {"pool": ""}, "It opens at 9:00."),
        ("- It opens at 9:00.\n- It has a pool.\n- It shuts.\n", {"pool": ""}, "- It opens at 9:00.\n- It shuts.\n"),
        ("- It opens at 9:00.\n- It has a pool.", {"pool": ""}, "- It opens at 9:00."),
        ("1. It has a pool. It opens at 9:00.\n2. It shuts.", {"pool": ""}, "1. It opens at 9:00.\n2. It shuts."),
        ("- It opens.\n- It has a pool.\n  - It is deep.\n- It shuts.", {"pool": "", "deep": ""}, "- It opens.\n- It shuts."),
        ("- It opens.\n- It has a pool.\n- It is deep.", {"pool": "", "deep": ""}, "- It opens."),
        ("It opens.\n\nIt has a pool.\n\nIt shuts.", {"pool": ""}, "It opens.\n\nIt shuts."),
        ("| a | b |\n|---|---|\n| pool | yes |\n| shop | 9:00 |", {"pool": ""}, "| a | b |\n|---|---|\n| shop | 9:00 |"),
        # A clause that goes, at the end and in the middle.
        ("The shop opens at 9:00, and guests get a towel.", {"towel": ""}, "The shop opens at 9:00."),
        # A field that goes.
        ('{"opens": "9:00", "pool": true}', {"pool": ""}, '{"opens": "9:00"}'),
        ('{"pool": true, "opens": "9:00"}', {"pool": ""}, '{"opens": "9:00"}'),
    ],
)  # fmt: skip
def test_a_correction_takes_the_place_of_its_claim(
    answer: str, fixes: dict[str, str | None], expected: str
) -> None:
    repair = repaired(answer, fixes)
    assert repair.text == expected
    assert repair.unrepaired == ()
    assert edited(answer, repair.edits) == expected
    assert Repair.model_validate_json(repair.model_dump_json()) == repair


@pytest.mark.parametrize(
    ("answer", "fixes", "reason"),
    [
        ("It closes at 17:00. It opens.", {"17:00": None}, NO_CORRECTION),
        ("It closes at 17:00. It opens.", {"17:00": "It closes at 19:45."}, UNFOUNDED),
        ("It is run by Ms Smith. It opens.", {"Smith": "It is run by Ms Kowalski."}, UNFOUNDED),
        ("Smith runs it. It opens.", {"Smith": "Kowalski runs it."}, UNFOUNDED),
        ("Ask k.dorsey. It opens.", {"k.dorsey": "Ask n.farouk."}, UNFOUNDED),
        ("Set `on` in it. It opens.", {"`on`": "Set `off` in it."}, UNFOUNDED),
        ("It closes at 17:00. It opens.", {"17:00": "It closes\u202e at 18:30."}, UNFOUNDED),
        ("Call it:\n\n```python\nopens(8)\n```\n", {"8": "opens(9)"}, CODE),
        ("| opens | closes |\n|---|---|\n| 9:00 | 17:00 |", {"17:00": "| 18:30 |"}, FORM),
        ('{"euros": 7, "hours": 2}', {"7": '"euros": 5 for'}, FORM),
        ('{"euros": 7, "hours": 2}', {"7": '"euros": "5"'}, FORM),
        ("Guests get a towel, and the shop opens at 9:00.", {"towel": ""}, NEEDED),
        ("It has a pool.", {"pool": ""}, EMPTY),
        # A correction that is another part's, begins a sentence, or lacks a sentence.
        ("The shop opens at 9:00 and closes at 17:00.", {"17:00": "The shop closes at 18:30."}, FORM),
        ("The shop opens at 8:00 and closes at 18:30.", {"8:00": "The shop opens at 9:00 and closes at 18:30."}, FORM),
        ("It opens at 9:00, and it closes at 17:00.", {"17:00": "It closes at 18:30. It opens."}, FORM),
        ("It closes at 17:00.[1] It opens at 9:00.", {"17:00": "It closes at 18:30."}, FORM),
        ("“It closes at 17:00. It opens.”", {"17:00": "“It closes at 18:30.”"}, FORM),
        ("It closes at 17:00 ([1]). It opens.", {"17:00": "It closes at 18:30."}, FORM),
        ("It closes at 17:00 (in short). It opens.", {"17:00": "It closes at 18:30."}, FORM),
        ('She says: "It closes at 17:00." It opens.', {"17:00": "It closes at 18:30."}, FORM),
        ("It closes at 17:00 [1] on weekdays. It opens.", {"17:00": "It closes at 18:30 on weekdays."}, FORM),
        ("| n | b |\n|---|---|\n| 1 | pool |\n| 2 | 9:00 |", {"pool": ""}, NEEDED),
        ("It is run by Ms Smith. It opens.", {"Smith": "It is run by Ms. Kowalski."}, UNFOUNDED),
        # What is no correction.
        ("It closes at 17:00. It opens.", {"17:00": "N/A"}, UNFOUNDED),
        ("It closes at 17:00. It opens.", {"17:00": "(remove)"}, UNFOUNDED),
        ("It closes at 17:00. It opens.", {"17:00": "(the shop closes)"}, FORM),
        ("It closes at 17:00. It opens.", {"17:00": "REMOVED: it closes at 18:30."}, UNFOUNDED),
        ("It closes at 17:00. It opens.", {"17:00": "<script>alert(1)</script> It closes at 18:30."}, UNFOUNDED),
        ("It closes at 17:00. It opens.", {"17:00": "![](x) It closes at 18:30."}, UNFOUNDED),
        # What stays would belong to another item, have no body, or have a number too few.
        ("- It opens.\n- It has a pool.\n  - It is deep.\n- It shuts.", {"pool": ""}, NEEDED),
        ("1. It opens.\n2. It has a pool.\n   It is deep.\n", {"pool": ""}, NEEDED),
        ("1. It opens.\n2. It has a pool.\n3. It shuts.", {"pool": ""}, NEEDED),
        ("Features:\n\n- It has a pool.\n\nIt opens at 9:00.", {"pool": ""}, NEEDED),
        ("It opens.\n\n## Bath\n\nIt has a pool.\n\n## Parking\n\nIt costs 5 euros.", {"pool": ""}, NEEDED),
        ("It opens.\n\n**Bath**\n\nIt has a pool.", {"pool": ""}, NEEDED),
        ("| a | b |\n|---|---|\n| pool | yes |\n\nIt opens.", {"pool": ""}, NEEDED),
        ("| pool | b |\n|---|---|\n| shop | yes |\n\nIt opens.", {"pool": ""}, NEEDED),
    ],
)  # fmt: skip
def test_a_correction_that_does_not_count_changes_nothing(
    answer: str, fixes: dict[str, str | None], reason: str
) -> None:
    repair = repaired(answer, fixes)
    assert repair.text == answer
    assert not repair.changed
    assert [row.reason for row in repair.unrepaired] == [reason]


@pytest.mark.parametrize(
    ("old", "new", "evidence"),
    [
        (
            "It costs 9 euros in all.",
            "It costs 12 euros in all.",
            "The meal costs 7 euros, the drink 5 euros",
        ),
        (
            "It is due on 1 March 2025.",
            "It is due on 28 March 2025.",
            "Due six weeks after 14 February 2025",
        ),
        ("It has five doors.", "It has three doors.", "Doors: north, south, west"),
        ("It rose by 5 %.", "It rose by 20 %.", "Sales were 50 and are 60 now"),
    ],
)
def test_a_value_may_follow_by_arithmetic_from_the_quotations(
    old: str, new: str, evidence: str
) -> None:
    other = "Nothing else is known about it here"
    assert report(old, {old: new}, [evidence], evidence).repair().text == new
    assert (
        not report(old, {old: new}, [f"{other}. {evidence.swapcase()}", other], other)
        .repair()
        .changed
    )


def test_two_parts_of_a_sentence_do_not_both_become_the_whole() -> None:
    answer, fix = "It opens at 8:00 and closes at 17:00.", "It opens at 9:00 and closes at 18:30."
    repair = repaired(answer, {"8:00": fix, "17:00": fix})
    assert repair.text == answer
    assert [row.reason for row in repair.unrepaired] == [FORM, FORM]


def test_a_report_that_was_stored_needs_the_answer() -> None:
    answer = "It closes at 17:00. It opens."
    made = report(answer, {"17:00": "It closes at 18:30."}, SHOP, "closes at 18:30")
    assert answer not in made.model_dump_json()
    stored = Report.model_validate_json(made.model_dump_json())
    assert stored == made
    with pytest.raises(RequestError, match="give repair"):
        stored.repair()
    with pytest.raises(RequestError, match="not the report's"):
        stored.repair("It closes.")
    assert stored.repair(answer) == made.changed(flags=()).repair() == made.repair()


def test_a_repair_is_a_tracked_change_in_html() -> None:
    answer = "It closes at 17:00. It has a <b>pool</b>."
    made = report(answer, {"17:00": "It closes at 18:30.", "pool": ""}, SHOP, "closes at 18:30")
    for html in (made.to_html(SHOP), answer_html(answer, made, {})):
        assert "closes at <del>17:00</del><ins>18:30</ins>." in html
        assert "It has a &lt;b&gt;pool&lt;/b&gt;.</del>" in html
    stored = Report.model_validate_json(made.model_dump_json())
    assert "<del>" not in stored.to_html(SHOP)


def test_edits_fit_only_their_answer() -> None:
    repair = repaired("It closes at 17:00. It opens.", {"17:00": "It closes at 18:30."})
    with pytest.raises(RequestError, match="does not fit"):
        edited("It closes at 16:00. It opens.", repair.edits)


PARTS = st.sampled_from(
    [
        "It opens at 8:00",
        "parking costs 7 euros",
        "Ms Brand runs it",
        "it has a pool",
        "the shop is old",
    ]
)
JOINTS = st.sampled_from([". ", ", and ", ".\n", ".\n- ", ";\n\n", ": ", " | ", "\n1. "])
FIXES = st.sampled_from(
    ["", "It opens at 9:00", "parking costs 5 euros.", "- 5 | 2", "it has 77 pools", '"']
)


@given(
    st.lists(st.tuples(PARTS, JOINTS), min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(["8:00", "7 euros", "pool", "old"]), FIXES),
)
def test_nothing_changes_outside_of_the_flagged_claims(
    parts: list[tuple[str, str]], fixes: dict[str, str | None]
) -> None:
    answer = "".join(text + joint for text, joint in parts)
    made = report(answer, fixes, SHOP, "closes at 18:30")
    repair = made.repair()
    assert edited(answer, repair.edits) == repair.text
    assert made.repair() == repair
    flagged = {claim.claim_id for claim in made.claims if claim.flagged}
    assert {edit.claim for edit in repair.edits} <= flagged
    assert {row.claim for row in repair.unrepaired} <= flagged
    assert len({edit.claim for edit in repair.edits}) == len(repair.edits)
    at = 0
    for edit in repair.edits:
        assert at <= edit.start <= edit.end
        at = edit.end
        for claim in made.claims:
            apart = edit.end <= claim.start or claim.end <= edit.start
            assert claim.flagged or apart, json.dumps([answer, edit.old])


def test_narrow_blanks_of_a_correction_stay() -> None:
    passages = ["Parking costs 5\u202f000\u00a0euros. Ms\u00a0Brand runs it."]
    fixes: dict[str, str | None] = {"7": "Parking\n  costs 5\u202f000\u00a0euros."}
    repair = repaired("Parking costs 7 coins. It opens.", fixes, passages)
    assert repair.text == "Parking costs 5\u202f000\u00a0euros. It opens."


MARKS = st.sampled_from(
    ["", "[1]", " [1]", "[^2]", " [1][2]", " (source 1)", "【3†shop】", " [1, 2]"]
)


@given(
    st.lists(st.tuples(PARTS, MARKS, st.sampled_from([".", ""]), MARKS), min_size=1, max_size=5),
    st.dictionaries(
        st.sampled_from(["8:00", "7 euros", "pool", "old"]),
        st.sampled_from(["It opens at 9:00", "parking costs 5 euros [1].", "it has 5 shops [1]"]),
    ),
)
def test_a_correction_loses_no_citation(
    parts: list[tuple[str, str, str, str]], fixes: dict[str, str | None]
) -> None:
    answer = " ".join("".join(part) for part in parts)
    repair = report(answer, fixes, SHOP, "closes at 18:30").repair()
    cited = re.compile(r"\[[^\]]*\]|\(source 1\)|【[^】]*】")
    for edit in repair.edits:
        assert len(cited.findall(edit.new)) >= len(cited.findall(edit.old)), json.dumps(
            [answer, edit.new]
        )
    assert len(cited.findall(repair.text)) >= len(cited.findall(answer))


def test_an_assertion_that_overlaps_a_claim_is_no_second_edit() -> None:
    answer = "The shop closes at 17:00. It has a pool."
    quote = (1, "closes at 18:30")

    def rule(data: dict[str, Any]) -> dict[str, Any]:
        wrong = {**contradicted(1, quote, wrong="17:00"), "fix": "The shop closes at 18:30."}
        right = supported(2, quote)
        more = {
            **contradicted(0, quote, wrong="17:00"),
            "text": "at 17:00. It",
            "fix": "at 18:30. It",
        }
        return {"id": data["id"], "claims": [wrong, right], "unnumbered": [more]}

    made = Case(answer, SHOP).judged(rule)
    assert [claim.claim_id for claim in made.claims if claim.flagged] == ["c1", "u1"]
    repair = made.repair()
    assert repair.text == "The shop closes at 18:30. It has a pool."
    assert [edit.claim for edit in repair.edits] == ["c1"]
    assert repair.unrepaired == ()
