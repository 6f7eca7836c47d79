"""Whether a text gives orders to its reader (`injection@1`), also in disguise or encoded."""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import math
import re
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Final, NamedTuple
from urllib.parse import unquote

from crp_integrations.errors import EngineError
from crp_integrations.guard.injection.patterns import PATTERNS, REASONS
from crp_integrations.guard.injection.records import (
    InjectionFinding,
    InjectionReport,
    InjectionSettings,
    Level,
    RuleName,
)
from crp_integrations.guard.ports import InjectionModel
from crp_integrations.language.hidden_text import hidden_text
from crp_integrations.language.text import fold
from crp_integrations.seals import sha256
from crp_integrations.validation import require_settings

# A reading is searched only if it contains some of these, and no fewer than the text itself.
_KEYWORDS: Final = re.compile(
    "ignore|disregard|forget|bypass|reveal|print|previous|instruction|prompt|system|password"
    "|secret|rules|developer|guideline|restrict|without|assistant"
)


class DisguiseReading(NamedTuple):
    """A text with a disguise undone.

    Attributes:
        start, end: range of the original text that differs.
    """

    rule: RuleName
    how: str
    text: str
    start: int
    end: int


def read_disguises(text: str) -> Iterator[DisguiseReading]:
    """The readings, in lower case, that contain words of orders, and no fewer than the text."""
    low = text.lower()
    known = max(1, len(_KEYWORDS.findall(low)))
    for rule, how, undo in _DISGUISES:
        reading = undo(text)
        undone = reading.lower()
        if undone != low and len(_KEYWORDS.findall(undone)) >= known:
            start = _same_length(text, reading)
            end = len(text) - _same_length(text[::-1], reading[::-1])
            yield DisguiseReading(rule, how, undone, start, max(start, end))


def _same_length(left: str, right: str) -> int:
    """Number of characters that two texts have in common at their beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def _within(
    pattern: str, undo: Callable[[str], str | bytes], flags: int = 0
) -> Callable[[str], str]:
    """A function that undoes the matches of a pattern if the result is readable text."""
    compiled = re.compile(pattern, flags)

    def undone(match: re.Match[str]) -> str:
        try:
            plain = undo(match.group())
            plain = plain.decode("ascii") if isinstance(plain, bytes) else plain
        except (ValueError, binascii.Error):
            return match.group()
        return plain if plain.isascii() and plain.replace("\n", "").isprintable() else match.group()

    return lambda text: compiled.sub(undone, text)


def _from_base64(text: str) -> bytes:
    bare = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)


def _from_base32(text: str) -> bytes:
    bare = text.rstrip("=")
    return base64.b32decode(bare + "=" * (-len(bare) % 8))


def _from_bits(text: str) -> str:
    return "".join(chr(int(byte, 2)) for byte in re.findall("[01]{8}", text))


def _join_letters(text: str) -> str:
    """Join letters that are separated by one separator; wider gaps separate words."""
    words = re.split(r"[ .\-_*|/,]{2,6}", text)
    return " ".join(re.sub(r"[\W_]", "", word) for word in words)


_LEET: Final = str.maketrans("0134578@$!|", "oieastbasil")
_ALIKE: Final = str.maketrans("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455", "aeopcyxis")
_DISGUISES: Final[tuple[tuple[RuleName, str, Callable[[str], str]], ...]] = (
    ("encoded", "Base64", _within(r"[A-Za-z0-9+/_-]{20,}={0,2}", _from_base64)),
    ("encoded", "Base32", _within("[A-Z2-7]{32,}={0,6}", _from_base32)),
    ("encoded", "hexadecimal digits", _within("(?:[0-9A-Fa-f]{2} ?){16,}", bytes.fromhex)),
    (
        "encoded",
        "escapes",
        _within(
            r"(?:\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4})+",
            lambda s: codecs.decode(s, "unicode_escape"),
        ),
    ),
    ("encoded", "percent signs", unquote),
    ("encoded", "character references", html.unescape),
    ("encoded", "bits", _within("(?:[01]{8} ?){8,}", _from_bits)),
    (
        "disguised",
        "letters apart",
        _within(r"(?<!\w)(?:\w[ .\-_*|/,]{1,6}){6,400}\w(?!\w)", _join_letters),
    ),
    ("disguised", "pieces", _within(r"['\"][ \n]{0,4}[+.,&]?[ \n]{0,4}['\"]", lambda _: "")),
    ("disguised", "digits for letters", lambda text: text.translate(_LEET)),
    ("disguised", "letters of another script", lambda text: text.translate(_ALIKE)),
    ("disguised", "letters turned by thirteen", lambda text: codecs.encode(text, "rot13")),
    ("disguised", "letters written backwards", lambda text: text[::-1]),
)


RULES = "injection@1"

_DIGITS = 4
# Maximum findings of one pattern or kind of hidden text; the score needs no more.
_MAX_FINDINGS = 8
# A shorter run of variation selectors is left from a copied emoji and contains no text.
_MIN_SELECTORS = 4
# Minimum bytes of a long text, and a compression ratio that prose never reaches.
_MIN_BLOAT_BYTES = 800
_BLOAT_RATIO = 0.1


def detect(text: str, settings: InjectionSettings | None = None) -> InjectionReport:
    """Check one text with every rule.

    The time grows only with the length of the text: every repetition of a pattern is bounded.

    Spec: Summit §Context Assembly Pipeline
    """
    chosen = require_settings(settings, InjectionSettings)
    folded = fold(text)
    low = _lower(folded.text)
    findings = list(_find(low))
    findings += _find_bloat(low)
    findings += _find_disguised(folded.text, {finding.reason for finding in findings})
    if folded.offsets is not None:
        for number, finding in enumerate(findings):
            place = folded.span(finding.start, finding.end)
            findings[number] = finding.model_copy(update={"start": place.start, "end": place.end})
    findings += _find_hidden(text)
    return _report(findings, chosen)


def _find(low: str) -> Iterator[InjectionFinding]:
    for rule, pattern in PATTERNS:
        for match in islice(pattern.finditer(low), _MAX_FINDINGS):
            yield InjectionFinding(
                rule=rule, level="clear", reason=REASONS[rule], start=match.start(), end=match.end()
            )


def _find_bloat(low: str) -> Iterator[InjectionFinding]:
    """Words that are repeated many times, which compression reveals."""
    size = len(low.encode("utf-8", "surrogatepass"))
    if size < _MIN_BLOAT_BYTES or 2 * sum(map(str.isalpha, low)) < len(low):
        return
    if len(zlib.compress(low.encode("utf-8", "surrogatepass"))) < _BLOAT_RATIO * size:
        yield InjectionFinding(
            rule="bloat", level="clear", reason=REASONS["bloat"], start=0, end=len(low)
        )


def _find_disguised(text: str, known: Collection[str]) -> Iterator[InjectionFinding]:
    """Orders that are found in a decoded reading of the text but not in the text itself."""
    for reading in read_disguises(text):
        new = sorted({finding.reason for finding in _find(reading.text)}.difference(known))
        if new:
            yield InjectionFinding(
                rule=reading.rule,
                level="certain",
                reason=f"{new[0]}, in {reading.how}",
                start=reading.start,
                end=reading.end,
            )


def _find_hidden(text: str) -> Iterator[InjectionFinding]:
    """Characters that are invisible to a person but not to a model."""
    for hidden in islice(hidden_text(text), _MAX_FINDINGS):
        if hidden.kind != "variation selectors" or hidden.end - hidden.start >= _MIN_SELECTORS:
            yield InjectionFinding(
                rule="invisible",
                level="certain" if hidden.decoded else "clear",
                reason=f"holds characters that nobody sees ({hidden.kind})",
                start=hidden.start,
                end=hidden.end,
            )


def detect_many(
    texts: Sequence[str],
    settings: InjectionSettings | None = None,
    model: InjectionModel | None = None,
) -> list[InjectionReport]:
    """Check texts with every rule and, if one is given, with a model."""
    chosen = require_settings(settings, InjectionSettings)
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
        findings += (
            InjectionFinding(rule="model", level=level, reason=reason, start=0, end=length),
        )
    return report.model_copy(
        update={
            "score": total,
            "injected": total >= settings.threshold,
            "findings": findings,
            "model": identity,
        }
    )


def _report(findings: Sequence[InjectionFinding], settings: InjectionSettings) -> InjectionReport:
    worth = {"certain": settings.certain, "clear": settings.clear, "hint": settings.hint}
    signs: dict[tuple[str, str], float] = {}
    for finding in findings:
        sign = (finding.rule, finding.reason.partition(",")[0])
        signs[sign] = max(signs.get(sign, 0.0), worth[finding.level])
    # Sorted by name, so that rounding is the same everywhere.
    clean = math.prod(1.0 - signs[name] for name in sorted(signs))
    score = round(1.0 - clean, _DIGITS)
    placed = sorted(findings, key=attrgetter("start", "end", "rule", "reason"))
    return InjectionReport(
        rules=RULES, score=score, injected=score >= settings.threshold, findings=tuple(placed)
    )


def _lower(text: str) -> str:
    """The text in lower case, character by character, so that offsets stay valid."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(sign if len(sign.lower()) != 1 else sign.lower() for sign in text)


class InjectionDetector:
    """The rules, and a model if one is given, with a cache of reports. Thread-safe.

    A report contains no word of its text and is cached by the text's hash, so no fact is kept.
    """

    def __init__(
        self,
        settings: InjectionSettings | None = None,
        model: InjectionModel | None = None,
        *,
        most_texts: int = 50_000,
    ) -> None:
        """Keep the settings and the model."""
        self._settings = require_settings(settings, InjectionSettings)
        self._model = model
        self._max_kept = most_texts
        self._known: OrderedDict[str, InjectionReport] = OrderedDict()
        self._lock = threading.Lock()

    def under(self, settings: InjectionSettings) -> InjectionDetector:
        """A detector with the same rules and model and these settings; itself if they are equal."""
        if settings == self._settings:
            return self
        return InjectionDetector(settings, self._model, most_texts=self._max_kept)

    @property
    def model(self) -> str:
        """Identity of the model; empty for none."""
        return "" if self._model is None else self._model.identity

    def reports(self, texts: Sequence[str]) -> list[InjectionReport]:
        """The reports on the texts, in their order; each text is checked once."""
        names = [sha256(text.encode("utf-8", "surrogatepass")) for text in texts]
        with self._lock:
            reports = {name: self._known[name] for name in names if name in self._known}
            for name in reports:
                self._known.move_to_end(name)
        new = {name: text for name, text in zip(names, texts, strict=True) if name not in reports}
        if new:
            made = detect_many(list(new.values()), self._settings, self._model)
            reports |= zip(new, made, strict=True)
            with self._lock:
                self._known.update((name, reports[name]) for name in new)
                while len(self._known) > self._max_kept:
                    self._known.popitem(last=False)
        return [reports[name] for name in names]
