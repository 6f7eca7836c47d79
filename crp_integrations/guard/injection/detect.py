"""Whether a text gives orders to the model that will read it (`injection@1`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from crp_integrations.errors import EngineError
from crp_integrations.guard.injection.addresses import carried_off
from crp_integrations.guard.injection.characters import bloated, hidden, marked, unseen
from crp_integrations.guard.injection.disguises import readings
from crp_integrations.guard.injection.encodings import blobs
from crp_integrations.guard.injection.languages import LATIN, SCRIPTS
from crp_integrations.guard.injection.orders import (
    ADDRESSED,
    DECODE,
    GLUED,
    LEAK,
    OVERRIDE,
    PERSONA,
)
from crp_integrations.guard.injection.phrases import Phrase
from crp_integrations.guard.injection.ports import InjectionModel
from crp_integrations.guard.injection.records import (
    Finding,
    InjectionReport,
    InjectionSettings,
    Level,
)
from crp_integrations.guard.injection.steering import AUTHORITY, STEERING, TOOLS
from crp_integrations.language.text import Folded, fold

RULES = "injection@1"

ENGLISH: tuple[Phrase, ...] = (
    *OVERRIDE,
    *PERSONA,
    *LEAK,
    *ADDRESSED,
    *STEERING,
    *AUTHORITY,
    *TOOLS,
    DECODE,
)

_WORDS = re.compile(r"[^\W\d_]+")
_SCRIPTS = tuple((re.compile(letter), phrases) for letter, phrases in SCRIPTS)
_DIGITS = 4


def detect(text: str, settings: InjectionSettings | None = None) -> InjectionReport:
    """Look at one text with every rule.

    The time grows with the length of the text alone: every repetition of a pattern is bounded.

    Spec: Summit §Context Assembly Pipeline

    Args:
        text: of any length and any script; it is read, never changed, and enters no report.
    """
    chosen = settings or InjectionSettings()
    folded = fold(text)
    low = _lower(folded.text)
    found = [_placed(one, folded) for one in _in_folded(folded.text, low, chosen)]
    found += unseen(text, chosen)
    found += _encoded(text, chosen)
    return _report(found, chosen)


def detect_many(
    texts: Sequence[str],
    settings: InjectionSettings | None = None,
    model: InjectionModel | None = None,
) -> list[InjectionReport]:
    """Look at texts with every rule and, where one is given, with a model.

    Args:
        model: its probability is one more finding, independent of those of the rules.

    Raises:
        EngineError: the model failed, or answered with another number of scores, or with one
            outside of [0, 1].
    """
    chosen = settings or InjectionSettings()
    reports = [detect(text, chosen) for text in texts]
    if model is None or not texts:
        return reports
    scores = list(model.score(texts))
    if len(scores) != len(texts):
        raise EngineError(
            f"injection model {model.identity!r} gave {len(scores)} scores for {len(texts)} texts"
        )
    return [
        _with_model(report, score, len(text), model.identity, chosen)
        for report, score, text in zip(reports, scores, texts, strict=True)
    ]


def _with_model(
    report: InjectionReport, score: float, length: int, identity: str, settings: InjectionSettings
) -> InjectionReport:
    if not 0.0 <= score <= 1.0:
        raise EngineError(
            f"injection model {identity!r} gave score {score}, wanted one within 0 and 1"
        )
    total = round(1.0 - (1.0 - report.score) * (1.0 - score), _DIGITS)
    findings = report.findings
    if score >= settings.hint:
        level: Level = "hint"
        if score >= settings.threshold:
            level = "clear" if score < settings.certain else "certain"
        reason = "the model takes it for an injection"
        findings += (Finding(rule="model", level=level, reason=reason, start=0, end=length),)
    return report.model_copy(
        update={
            "score": total,
            "injected": total >= settings.threshold,
            "findings": findings,
            "model": identity,
        }
    )


# --- rules over one reading ------------------------------------------------------------


def _in_folded(folded: str, low: str, settings: InjectionSettings) -> Iterator[Finding]:
    yield from _said(low, ENGLISH, settings)
    yield from _foreign(low, settings)
    yield from marked(low, settings)
    yield from hidden(low, settings)
    yield from bloated(folded, low, settings)
    yield from carried_off(folded)
    for reading in readings(low):
        for found in _said(reading.text, ENGLISH, settings):
            start, end = reading.span(found.start, found.end)
            if found.level == "hint" or low[start:end] == reading.text[found.start : found.end]:
                continue
            yield Finding(
                rule="disguised",
                level="certain",
                reason=f"{found.reason}, {reading.how}",
                start=start,
                end=end,
            )


def _said(low: str, phrases: Iterable[Phrase], settings: InjectionSettings) -> Iterator[Finding]:
    """Phrases of a text, each as often as settings keep."""
    words = set(_WORDS.findall(low))
    for one in phrases:
        if not one.needs or not one.needs.isdisjoint(words):
            yield from _matches(one, low, settings)
    if "instruction" in low or "prompt" in low:
        yield from _matches(GLUED, low, settings)


def _foreign(low: str, settings: InjectionSettings) -> Iterator[Finding]:
    for trigger, one in LATIN:
        if trigger in low:
            yield from _matches(one, low, settings)
    if not low.isascii():
        for letter, phrases in _SCRIPTS:
            if letter.search(low):
                for one in phrases:
                    yield from _matches(one, low, settings)


def _encoded(text: str, settings: InjectionSettings) -> Iterator[Finding]:
    for blob in blobs(text, settings.longest_decoded):
        low = _lower(fold(blob.text).text)
        orders = any(found.level != "hint" for found in _said(low, ENGLISH, settings))
        if orders or blob.prose:
            yield Finding(
                rule="encoded",
                level="certain" if orders else "hint",
                reason=f"{'gives orders' if orders else 'holds sentences'} in {blob.how}",
                start=blob.start,
                end=blob.end,
            )


def _matches(one: Phrase, low: str, settings: InjectionSettings) -> Iterator[Finding]:
    for number, match in enumerate(one.pattern.finditer(low)):
        if number == settings.most_findings:
            return
        yield Finding(
            rule=one.rule,
            level=one.level,
            reason=one.reason,
            start=match.start(),
            end=match.end(),
        )


# --- the report ------------------------------------------------------------------------


def _report(found: Sequence[Finding], settings: InjectionSettings) -> InjectionReport:
    worth = {"certain": settings.certain, "clear": settings.clear, "hint": settings.hint}
    signs: dict[tuple[str, str], float] = {}
    for one in found:
        sign = (one.rule, one.reason.partition(",")[0])
        signs[sign] = max(signs.get(sign, 0.0), worth[one.level])
    # In the order of the names, so that rounding is the same everywhere.
    clean = math.prod(1.0 - signs[name] for name in sorted(signs))
    score = round(1.0 - clean, _DIGITS)
    kept: list[Finding] = []
    counts: dict[str, int] = {}
    for one in sorted(found, key=lambda one: (one.start, one.end, one.rule, one.reason)):
        counts[one.rule] = counts.get(one.rule, 0) + 1
        if counts[one.rule] <= settings.most_findings:
            kept.append(one)
    return InjectionReport(
        rules=RULES, score=score, injected=score >= settings.threshold, findings=tuple(kept)
    )


def _placed(one: Finding, folded: Folded) -> Finding:
    if folded.offsets is None:
        return one
    place = folded.span(one.start, one.end)
    return one.model_copy(update={"start": place.start, "end": place.end})


def _lower(text: str) -> str:
    """The text in lower case, character by character, so that offsets stay."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(one if len(one.lower()) != 1 else one.lower() for one in text)
