"""Stage 11: prompt and answer, categories checked or not, the warning, and nothing kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pii.spans import KINDS, NEVER_CHECKED, PersonalSpan
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Recogniser
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings, PersonalSettings
from crp_integrations.vocabulary import PersonalCategory

SECRETS = ("jo.moon@example.org", "4111 1111 1111 1111", "Ann Moonraker")
TEXT = f"Write to {SECRETS[0]}, charge {SECRETS[1]}, ask {SECRETS[2]}."


def _report(
    answer: str = "",
    *,
    personal: PersonalSettings | None = None,
    recognisers: Sequence[Recogniser] = (),
    **about: Any,
) -> Report:
    return examine(
        Dossier(about.pop("question", ""), answer, (), **about),
        embedder=None,
        verifier=None,
        settings=DpeSettings(personal=personal or PersonalSettings()),
        recognisers=recognisers,
    )


@pytest.mark.requirement("005-13.1-1", "005-15.2-4")
@pytest.mark.parametrize(
    ("answer", "about", "where"),
    [
        (TEXT, {}, "answer"),
        ("Fine.", {"prompt": TEXT}, "prompt"),
        ("Fine.", {"question": TEXT}, "prompt"),
    ],
)
def test_prompt_and_answer_are_searched(answer: str, about: dict[str, Any], where: str) -> None:
    report = _report(answer, **about)
    assert report.gdpr_pii_detected
    assert [datum.where for datum in report.personal.found] == [where] * 3
    for datum, secret in zip(report.personal.found, SECRETS, strict=True):
        assert TEXT[datum.start : datum.end] == secret
    assert report.amplifiers_applied == ("gdpr-pii",)


@pytest.mark.requirement("005-13.1-1")
def test_every_category_is_checked_or_said_not_to_be() -> None:
    report = _report("Fine.")
    assert not report.gdpr_pii_detected
    assert set(report.personal.checked) == set(PersonalCategory)
    assert all(report.personal.checked.values())
    assert report.personal.not_checked == tuple(sorted(NEVER_CHECKED))
    less = _report("Fine.", personal=PersonalSettings(aside=("salary", "person")))
    assert set(less.personal.not_checked) == {*NEVER_CHECKED, "salary", "person"}
    sensitive = tuple(k for k, of in KINDS.items() if of is PersonalCategory.SENSITIVE)
    none = _report("Fine.", personal=PersonalSettings(aside=sensitive))
    assert none.personal.checked["sensitive"] == ()
    assert set(sensitive) <= set(none.personal.not_checked)


@pytest.mark.requirement("005-13.3-2")
def test_personal_data_without_no_store_is_warned_of() -> None:
    assert "no-store" in _report(TEXT).personal.warning
    assert "personal-data-without-no-store" in _report(TEXT).flags
    for quiet in (_report(TEXT, no_store=True), _report("Fine."), _report("Fine.", no_store=True)):
        assert quiet.personal.warning == ""
        assert "personal-data-without-no-store" not in quiet.flags


def test_the_words_of_stage_11_hold_no_personal_data() -> None:
    report = _report("Fine.", prompt=TEXT)
    written = report.model_dump_json()
    assert report.gdpr_pii_detected
    for secret in SECRETS:
        assert secret not in written


class _Voices:
    identity = "voices 1"
    kinds: Mapping[str, PersonalCategory] = {"voice": PersonalCategory.DIRECT}

    def find(self, text: str) -> Sequence[PersonalSpan]:
        at = text.find("hum")
        if at < 0:
            return ()
        return [PersonalSpan(PersonalCategory.DIRECT, "voice", at, at + 3, "voices@1", 0.9)]


def test_other_recognisers_add_what_they_find_and_check() -> None:
    report = _report("They hum.", recognisers=[_Voices()])
    assert [(d.kind, d.recogniser) for d in report.personal.found] == [("voice", "voices@1")]
    assert "voice" not in report.personal.not_checked
    assert report.personal.checked["direct"] == ("own recognisers@1", "voices 1")
    assert [run.engine for run in report.stages if run.number == 11] == [
        "own recognisers@1; voices 1"
    ]


def test_more_places_than_are_told_of_is_said() -> None:
    text = " ".join(f"u{n}@example.org" for n in range(9))
    report = _report(text, personal=PersonalSettings(most_found=4))
    assert len(report.personal.found) == 4
    assert report.personal.truncated
    assert "personal-data-cut" in report.flags


@pytest.mark.parametrize(
    ("question", "answer", "is_own"),
    [
        ("+33 1 42 68 53 00", "0033 1 42 68 53 00", True),
        ("0033142685300", "+33 1 42 68 53 00", True),
        ("+33 1 42 68 53 00", "01 42 68 53 00", True),
        ("01 42 68 53 00", "+33 (0)1 42 68 53 00", True),
        ("+48 22 694 60 00", "22 694 60 00", True),
        ("+1 202 555-0142", "(202) 555 0142", True),
        ("01 42 68 53 00", "+44 1 42 68 53 00", False),
        ("+33 1 42 68 53 00", "0034 1 42 68 53 00", False),
        ("+33 1 42 68 53 00", "01 42 68 53 01", False),
    ],
)
def test_one_telephone_number_in_two_spellings_is_the_questions_own(
    question: str, answer: str, is_own: bool
) -> None:
    asked = f"Is my telephone number {question} right?"
    report = _report(f"The telephone number is {answer}.", question=asked)
    assert _own_in_answer(report) == [is_own]


def test_data_of_earlier_messages_is_own_and_of_tools_and_system_prompts_is_not() -> None:
    talk = (("user", f"I am {SECRETS[2]}, at {SECRETS[0]}."), ("assistant", "Good."))
    asked: dict[str, Any] = {"question": "Who am I?", "conversation": talk}
    assert _own_in_answer(_report(TEXT, **asked)) == [True, False, True]
    prompt = "\n\n".join(("Bill " + SECRETS[1], *(text for _, text in talk), "Who am I?"))
    assert _own_in_answer(_report(TEXT, **asked, prompt=prompt)) == [True, False, True]
    assert _own_in_answer(_report(TEXT, question="Who?", prompt=prompt)) == [False] * 3


def _own_in_answer(report: Report) -> list[bool]:
    return [datum.in_question for datum in report.personal.found if datum.where == "answer"]
