"""Statuses of claims from a judge's replies, and the level that they come to (decision D13)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from crp_integrations.dpe.judge.reasons import MOST, SENTENCES, reasons
from crp_integrations.dpe.judge.verdict import judged
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.report import finish
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import (
    ClaimStatus,
    ClaimType,
    ErrorKind,
    GroundingMode,
    RiskLevel,
    Verification,
)
from tests.dpe.judging import (
    Case,
    claims_of,
    contradicted,
    quoted,
    saying,
    statuses,
    supported,
    unsupported,
)

PASSAGES = [
    "The Aurach bridge was opened in May 1998 and is 312 metres long.",
    "It was designed by Lena Brandt. Its toll is 4.20 euros for cars.",
]
CASE = Case(
    "The bridge is 312 metres long. It was opened in 1999. It has a museum.",
    PASSAGES,
    question="Tell me about the Aurach bridge.",
)
RIGHT = supported(1, (1, "312 metres long"))
WRONG = contradicted(2, (1, "opened in May 1998"), kind="DATE", wrong="1999")
INVENTED = unsupported(3, "INVENTION", "a museum")


def test_a_judge_decides_on_status_level_and_reasons() -> None:
    report = CASE.judged(saying(RIGHT, WRONG, INVENTED))
    assert statuses(report) == ["SUPPORTED", "CONTRADICTED", "UNSUPPORTED"]
    assert [claim.error for claim in report.claims] == [None, ErrorKind.DATE, ErrorKind.INVENTION]
    wrongs = [claim.wrong and CASE.answer[slice(*claim.wrong)] for claim in report.claims]
    assert wrongs == [None, "1999", "a museum"]
    assert (report.risk_level, report.flagged) == (RiskLevel.HIGH, True)
    assert report.verification is Verification.VERIFIED
    assert report.checked_by == "judge test/judge"
    assert report.reasons == (
        "The answer says 1999; passage 1 says “opened in May 1998”.",
        "The evidence does not support “a museum”.",
    )


def test_nothing_found_and_everything_checked_is_low() -> None:
    case = Case(CASE.answer.replace("1999", "1998"), PASSAGES)
    rule = saying(
        RIGHT, supported(2, (1, "was opened in May")), supported(3, (1, "The Aurach bridge was"))
    )
    report = case.judged(rule)
    assert (report.risk_level, report.flagged, report.reasons) == (RiskLevel.LOW, False, ())
    assert report.verification is Verification.VERIFIED


def test_what_the_reply_leaves_out_is_not_checked() -> None:
    report = CASE.judged(saying(RIGHT, supported(3, (1, "The Aurach bridge was"))))
    assert statuses(report) == ["SUPPORTED", "NOT_CHECKED", "SUPPORTED"]
    assert (report.risk_level, report.verification) == (RiskLevel.UNKNOWN, Verification.PARTIAL)
    assert (report.risk_score, report.flagged) == (None, False)
    assert report.reasons == ("“It was opened in 1999” was not read.",)


def test_verdicts_on_claims_that_are_not_there_change_nothing() -> None:
    alone = CASE.judged(saying(RIGHT, WRONG, INVENTED))
    more = [{**contradicted(n, (1, "1998")), "n": n} for n in (0, 4, 99, -1, 10**30)]
    assert CASE.judged(saying(RIGHT, WRONG, INVENTED, *more)).claims == alone.claims


def test_a_word_that_is_not_in_its_claim_is_no_place() -> None:
    report = CASE.judged(saying(RIGHT, {**WRONG, "wrong": "2001"}, {**INVENTED, "wrong": "312"}))
    assert [claim.wrong for claim in report.claims] == [None, None, None]
    assert report.reasons[0].startswith("The answer says “It was opened in 1999”;")


@pytest.mark.parametrize(
    ("mode", "kind", "level"),
    [
        ("context-strict", "OVERREACH", "HIGH"),
        ("context-preferred", "OVERREACH", "MEDIUM"),
        ("open", "OVERREACH", "LOW"),
        ("context-strict", "INVENTION", "HIGH"),
        ("context-preferred", "INVENTION", "HIGH"),
        ("open", "INVENTION", "HIGH"),
        ("context-preferred", "NUMBER", "HIGH"),
        ("context-preferred", None, "MEDIUM"),
        ("context-preferred", "NO_SUCH_KIND", "MEDIUM"),
    ],
)
def test_an_unsupported_claim_by_grounding_mode(mode: str, kind: str | None, level: str) -> None:
    case = Case(CASE.answer, PASSAGES, grounding=GroundingMode(mode))
    other = supported(2, (1, "bridge was opened in May 1998"))
    report = case.judged(saying(RIGHT, other, {"n": 3, "status": "UNSUPPORTED", "kind": kind}))
    assert report.risk_level == level
    assert ("unsupported-allowed" in report.flags) == (level == "LOW")


@pytest.mark.parametrize("mode", list(GroundingMode))
def test_a_contradicted_claim_is_high_in_every_mode(mode: GroundingMode) -> None:
    case = Case(CASE.answer, PASSAGES, grounding=mode)
    report = case.judged(saying(RIGHT, WRONG, supported(3, (1, "The Aurach bridge was"))))
    assert report.risk_level is RiskLevel.HIGH


# --- laws of the level ---------------------------------------------------------------------------

STATUS = st.tuples(
    st.sampled_from(list(ClaimStatus)),
    st.sampled_from([None, *ErrorKind]),
    st.sampled_from(list(ClaimType)),
)
MODES = st.sampled_from(list(GroundingMode))
# --- what stands in no numbered claim ------------------------------------------------------------


def _unnumbered(text: str, **verdict: Any) -> dict[str, Any]:
    return {"text": text, "status": "UNSUPPORTED", "kind": "INVENTION", "quotes": [], **verdict}


def _gap() -> tuple[Case, str]:
    """A case whose answer has words between its claims."""
    case = Case("Museum and lake\n\nlength = 312 metres", PASSAGES, missed="Museum and lake")
    assert [claim.text for claim in case.screened.claims] == ["length = 312 metres"]
    return case, "Museum and lake"


def test_an_assertion_outside_of_the_claims_is_one_with_offsets() -> None:
    case, words = _gap()
    rule = saying(RIGHT, unnumbered=[_unnumbered(words.upper(), wrong="lake")])
    report = case.judged(rule)
    added = report.claims[0]
    assert (added.claim_id, added.text, case.answer[added.start : added.end]) == (
        "u1",
        words,
        words,
    )
    assert added.wrong is not None
    assert case.answer[slice(*added.wrong)] == "lake"
    assert report.claims_total == len(report.claims) == 2
    assert sum(report.claims_by_type.values()) == 2
    assert report.risk_level is RiskLevel.HIGH


def test_an_assertion_that_does_not_stand_in_the_answer_is_counted() -> None:
    report = CASE.judged(saying(RIGHT, WRONG, INVENTED, unnumbered=[_unnumbered("A zoo.")]))
    assert len(report.claims) == 3
    assert report.judge is not None
    assert report.judge.unplaced == 1


def test_within_a_numbered_claim_only_what_is_flagged_in_an_unflagged_one_counts() -> None:
    words = "312 metres"
    again = _unnumbered(words, status="SUPPORTED", quotes=quoted((1, words)))
    assert len(CASE.judged(saying(RIGHT, WRONG, INVENTED, unnumbered=[again])).claims) == 3
    other = _unnumbered("in 1999")
    assert len(CASE.judged(saying(RIGHT, WRONG, INVENTED, unnumbered=[other])).claims) == 3
    other = _unnumbered(words, status="CONTRADICTED", quotes=quoted((2, "4.20")))
    report = CASE.judged(saying(RIGHT, unnumbered=[other]))
    assert [one.claim_id for one in report.claims if one.flagged] == ["u1"]
    assert report.risk_level is RiskLevel.HIGH


def test_words_that_stand_twice_are_meant_where_no_claim_has_them() -> None:
    case = Case("The bridge is 312 metres long.\n\n312 metres", PASSAGES, missed="312 metres")
    report = case.judged(saying(RIGHT, unnumbered=[_unnumbered("312 metres")]))
    assert [one.start for one in report.claims if one.claim_id == "u1"] == [
        case.answer.rindex("312")
    ]


def test_an_unnumbered_assertion_needs_its_quotation_too() -> None:
    case, words = _gap()
    for status in ("SUPPORTED", "CONTRADICTED"):
        report = case.judged(saying(RIGHT, unnumbered=[_unnumbered(words, status=status)]))
        assert statuses(report) == ["NOT_CHECKED", "SUPPORTED"]
        assert report.risk_level is RiskLevel.UNKNOWN


# --- the report ----------------------------------------------------------------------------------


def test_the_same_replies_give_the_same_report() -> None:
    rule = saying(RIGHT, WRONG, INVENTED, unnumbered=[_unnumbered("The bridge")])
    run, _ = CASE.played(rule)
    written = {
        finish(judged(CASE.screened, CASE.dossier, run, DpeSettings())).model_dump_json()
        for _ in range(3)
    }
    assert len(written) == 1
    again, _ = CASE.played(rule)
    assert again == run


def test_a_changed_reply_gives_another_report() -> None:
    run, _ = CASE.played(saying(RIGHT, WRONG, INVENTED))
    call = run.calls[0]
    changed = call.reply.replace('"status": "CONTRADICTED"', '"status": "SUPPORTED"')
    other = run.model_copy(update={"calls": (call.model_copy(update={"reply": changed}),)})
    first, second = (
        finish(judged(CASE.screened, CASE.dossier, one, DpeSettings())) for one in (run, other)
    )
    assert first.report_hash != second.report_hash


def test_model_prompt_and_replies_are_kept_with_the_report() -> None:
    report = CASE.judged(saying(RIGHT, WRONG, INVENTED))
    assert report.judge is not None
    assert report.judge.model == "test/judge"
    assert report.judge.prompt.startswith("judge@1+")
    (call,) = report.judge.calls
    assert (call.first, call.last, call.passages) == (1, 3, (1, 2))
    assert (call.model, len(call.prompt_hash)) == ("judge-1", 64)
    assert call.id in call.reply


def test_a_claim_that_was_not_checked_keeps_nothing_of_the_stages_before() -> None:
    case = Case("The bridge is 300 metres long.", PASSAGES)
    (claim,) = case.judged(saying(supported(1, (2, "300 metres")))).claims
    assert (claim.status, claim.error, claim.wrong, claim.quotations, claim.reason) == (
        ClaimStatus.NOT_CHECKED, None, None, (), "",
    )  # fmt: skip


def test_an_answer_without_a_claim_is_not_asked_about() -> None:
    case = Case("", PASSAGES)
    report = case.judged(lambda data: pytest.fail("asked"))
    assert "judge-not-asked=no claim" in report.flags


# --- reasons -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "The answer says 1999; passage 1 says “opened in May 1998”."),
        ("de", "In der Antwort steht 1999; in Abschnitt 1 steht “opened in May 1998”."),
        ("fr", "La réponse dit 1999 ; le passage 1 dit “opened in May 1998”."),
        ("es", "La respuesta dice 1999; el pasaje 1 dice “opened in May 1998”."),
    ],
)
def test_reasons_in_four_languages(language: str, said: str) -> None:
    report = CASE.judged(saying(RIGHT, WRONG, INVENTED))
    found = reasons(CASE.answer, report.claims, language)
    assert found[0] == said
    assert len(found) == 2


def test_every_language_has_every_sentence() -> None:
    wanted = set(SENTENCES["en"])
    assert {language: set(words) for language, words in SENTENCES.items()} == dict.fromkeys(
        ("en", "de", "fr", "es"), wanted
    )
    with pytest.raises(ConfigError, match="language 'xx' is not one of en, de, fr, es"):
        reasons("", (), "xx")


def test_reasons_are_few_and_the_gravest_come_first() -> None:
    answer = " ".join(f"The bridge has {n} towers." for n in range(2, 12))
    case = Case(answer, ["The bridge has 1 tower."])
    claims = [unsupported(n) for n in range(1, 10)]
    report = case.judged(saying(*claims, contradicted(10, (1, "1 tower"), wrong="11 towers")))
    assert len(report.reasons) == MOST
    assert report.reasons[0] == "The answer says 11 towers; passage 1 says 1 tower."
    assert "2 towers" in report.reasons[1]


def test_reasons_name_the_question_and_the_system_prompt() -> None:
    case = Case("It is 3 km long.", [], question="Is the 2 km road open?", system="It has 4 km.")
    for name, said in (("q", "the question says 2 km"), ("s", "the system prompt says 4 km")):
        words = "2 km" if name == "q" else "4 km"
        report = case.judged(saying(contradicted(1, (name, words), wrong="3 km")))
        assert report.reasons == (f"The answer says 3 km; {said}.",)


def test_long_words_are_shortened_in_a_reason() -> None:
    long = "The bridge was painted by people " + "from a village in the valley " * 9 + "."
    report = Case(long, PASSAGES).judged(
        lambda data: {"id": data["id"], "claims": [unsupported(n) for n, _ in claims_of(data)]}
    )
    assert all(len(one) < 150 for one in report.reasons)
    assert "…" in report.reasons[0]
