"""Stage 11: personal data in the request and in the answer; the text of a place is never kept.

Spec: CRP-SPEC-005 §13
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal

from crp_integrations.dpe.compliance import PersonalData, PersonalDatum
from crp_integrations.dpe.pii import OWN, find_personal_data
from crp_integrations.dpe.pii.spans import KINDS, NEVER_CHECKED, PersonalSpan, apart
from crp_integrations.dpe.ports import Recogniser
from crp_integrations.dpe.records import StageRun
from crp_integrations.dpe.settings_compliance import PersonalSettings
from crp_integrations.dpe.signals import Signals, fixed
from crp_integrations.dpe.state import State
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import PersonalCategory

NUMBER: Final = 11
NAME: Final = "personal data detection"
WARNING: Final = (
    "personal data was found and the request does not say no-store; send "
    "CRP-Context-Cache: no-store, or make sure that there is a ground for keeping it"
)


def find_personal(state: State) -> State:
    """Search the request's prompt and the answer for personal data of every category.

    Spec: CRP-SPEC-005 §13.1, §13.3 (decision E22)
    """
    dossier, settings = state.dossier, state.tools.settings.personal
    others = state.tools.recognisers
    texts: tuple[tuple[Literal["prompt", "answer"], str], ...] = (
        ("prompt", dossier.prompt or dossier.question),
        ("answer", dossier.answer),
    )
    found: list[PersonalDatum] = []
    truncated = False
    for where, text in texts:
        spans = _spans(text, settings, others, state.tools.signals)
        truncated = truncated or len(spans) > settings.most_found
        found.extend(_datum(one, where) for one in spans[: settings.most_found])
    checked = _checked(settings, others)
    looked_for = {*KINDS, *NEVER_CHECKED} & {kind for kinds in checked.values() for kind in kinds}
    personal = PersonalData(
        found=tuple(found),
        checked=_by_category(settings, others),
        not_checked=tuple(sorted({*KINDS, *NEVER_CHECKED} - looked_for)),
        warning=WARNING if found and not dossier.no_store else "",
        truncated=truncated,
    )
    run = StageRun(number=NUMBER, name=NAME, engine="; ".join(checked))
    return replace(state, personal=personal, stages=(*state.stages, run))


def _spans(
    text: str, settings: PersonalSettings, others: Iterable[Recogniser], signals: Signals
) -> list[PersonalSpan]:
    spans = list(find_personal_data(text, settings=settings))
    for recogniser in others:
        spans.extend(
            one
            for one in _told(signals, recogniser, text)
            if one.score >= settings.least_score and one.kind not in settings.aside
        )
    return apart(spans)


def _told(signals: Signals, recogniser: Recogniser, text: str) -> list[PersonalSpan]:
    """The places that another recogniser finds, their scores to a millionth."""

    def asked() -> list[list[str | int]]:
        return [
            [one.category.value, one.kind, one.start, one.end, one.recogniser, fixed(one.score)]
            for one in recogniser.find(text)
        ]

    return [
        PersonalSpan(PersonalCategory(category), kind, start, end, name, score / SCALE)
        for category, kind, start, end, name, score in signals.said(
            f"personal.{recogniser.identity}", asked
        )
    ]


def _checked(settings: PersonalSettings, others: Iterable[Recogniser]) -> dict[str, frozenset[str]]:
    """The kinds that each recogniser looked for."""
    own = {OWN: frozenset(KINDS) - set(settings.aside)}
    return own | {
        recogniser.identity: frozenset(recogniser.kinds) - set(settings.aside)
        for recogniser in others
    }


def _by_category(
    settings: PersonalSettings, others: Iterable[Recogniser]
) -> dict[str, tuple[str, ...]]:
    """For each category of the document which recognisers looked for something of it."""
    kinds: dict[str, Mapping[str, PersonalCategory]] = {OWN: KINDS}
    kinds |= {recogniser.identity: recogniser.kinds for recogniser in others}
    return {
        category.value: tuple(
            name
            for name, known in kinds.items()
            if any(of is category and kind not in settings.aside for kind, of in known.items())
        )
        for category in PersonalCategory
    }


def _datum(one: PersonalSpan, where: Literal["prompt", "answer"]) -> PersonalDatum:
    return PersonalDatum(
        category=one.category,
        kind=one.kind,
        where=where,
        start=one.start,
        end=one.end,
        recogniser=one.recogniser,
        score=one.score,
    )
