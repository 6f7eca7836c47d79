"""Which differences between a claim and its source are reported.

Most differences that show without reading are differences of wording. One is reported where the
claim restates a clause of the source, so that what differs was changed, or where the claim names
something that stands nowhere. Everything else is left to a judge: silence comes first.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import Alignment, Change, align
from crp_integrations.dpe.verifier.opposition import Flip
from crp_integrations.dpe.verifier.values import Reading, Value, read, same_name, same_value
from crp_integrations.language.blocks import is_row
from crp_integrations.language.claim_kinds import is_silent
from crp_integrations.language.claims import clauses
from crp_integrations.language.dates import DateMention
from crp_integrations.language.measures import to_base
from crp_integrations.language.negation import find_conditions, negations
from crp_integrations.language.quantities import Quantity, same_kind
from crp_integrations.language.text import Span, plain
from crp_integrations.language.words import content_words

# Share of a claim's words that a clause has, and of the clause's that the claim has, from which
# the claim restates it; more is asked where only a word or a condition differs.
KEPT: Final = 0.6
COVERED: Final = 0.5
SENSE_KEPT: Final = 0.9
SENSE_COVERED: Final = 0.75
# A context with no more values leaves nothing to calculate from.
FEW_VALUES: Final = 4
# A context of no more sentences is what the claim is about.
FEW_UNITS: Final = 4
SMALL_KEPT: Final = 0.6
SMALL_COVERED: Final = 0.5
# Numbers up to this count what a text names anyway.
COUNTED: Final = 10
FEWEST_WORDS: Final = 2
# Share by which a calculated figure may be rounded.
ROUNDED: Final = Decimal("0.006")
_LOSS: Final = re.compile(
    r"(?i)\b(?:loss(?:es)?|lost|deficit|negative|minus|f[ea]ll\w*|declin\w+|decreas\w+|down|drop\w*)\b"
)


def reported(
    found: Alignment, claim: Reading, context: Context, known: Iterable[str] = ()
) -> Alignment:
    """The alignment with the differences that are reported, and no others.

    Spec: CRP-SPEC-005 §5.2, §5.3 (decision D10)

    Args:
        known: texts that are given without a source, such as the question.
    """
    given = [value for text in known for value in read(text).values]
    small = len(context.units) <= FEW_UNITS
    if small and found.units:
        found = _by_clause(found, claim, context)
    source = read(context.text(found.units[0])) if found.units else None
    figures = sum(len(reading.of("quantity", "date")) for reading in context.readings)
    few = figures <= FEW_VALUES
    kept, covered = _restated(claim, source)
    near = kept >= KEPT and (covered >= COVERED or few) and source is not None
    sense = (
        len(claim.words) >= FEWEST_WORDS
        and _kept_beside(found.flip, claim, source, kept) >= (SMALL_KEPT if small else SENSE_KEPT)
        and covered >= (SMALL_COVERED if small else SENSE_COVERED)
        and source is not None
        and (small or len(negations(source.text)) < 2)
        and not is_row(source.text)
        and not is_row(claim.text)
    )
    changes = tuple(
        change
        for change in found.changes
        if near and source is not None and _changed(change, claim, source, context, given, few)
    )
    # What replaces nothing may still stand nowhere.
    open_ = [change.claim for change in found.changes if change not in changes]
    readings = (claim, *context.readings)
    untraced = tuple(
        value
        for value in sorted((*found.untraced, *open_), key=lambda one: one.start)
        if not any(same_value(value, other) for other in given)
        and (
            value in found.untraced and _stands_nowhere(value, claim, context, small)
            if value.family == "name"
            else few
            and (near or not _is_count(value))
            and not context.places(value)
            and not _calculated(value, readings)
            and not _as_loss(value, claim, context)
        )
    )
    return replace(
        found,
        changes=changes,
        untraced=untraced,
        flip=found.flip if sense else None,
        condition=_dropped(found.condition, claim, source, small) if source else None,
    )


def _kept_beside(flip: Flip | None, claim: Reading, source: Reading | None, kept: float) -> float:
    """The share that is kept of the words beside the one that was turned."""
    if flip is None or source is None:
        return kept
    own = _stems(claim) - (_stems(claim, flip.claim.start, flip.claim.end) - source.stems)
    return len(own & source.stems) / len(own) if own else kept


def _dropped(condition: Span | None, claim: Reading, source: Reading, small: bool) -> Span | None:
    """The condition, where the claim restates the rest of the sentence and has none itself."""
    if condition is None or not small or is_row(source.text) or is_row(claim.text):
        return None
    own, there = _stems(claim), _stems(source)
    inside = _stems(source, condition.start, condition.end)
    kept = len(own & source.stems) / len(own) if own else 1.0
    rest = there - inside
    covered = len(rest & claim.stems) / len(rest) if rest else 1.0
    if kept < SMALL_KEPT or covered < SMALL_COVERED:
        return None
    bound = _BOUND.search(condition.of(source.text)) and _BOUNDED.search(claim.text)
    return None if bound or find_conditions(claim.text) else condition


_BOUND: Final = re.compile(r"(?i)\bat (?:least|most)\b|\bup to\b")
_BOUNDED: Final = re.compile(
    r"(?i)\bor (?:more|less|longer|fewer|above|below)\b|\b(?:minimum|maximum|limit)\b|[\u2264\u2265<>+]"
    r"|\bno (?:more|less|fewer|later) than\b"
)


def _by_clause(found: Alignment, claim: Reading, context: Context) -> Alignment:
    """The alignment with the clause that the claim restates, where the sentence has several."""
    unit = found.units[0]
    text = context.text(unit)
    parts = clauses(text)
    if len(parts) < 2 or not found.lexical:
        return found
    own = _stems(claim)
    source = read(text)
    best = max(parts, key=lambda part: len(own & _stems(source, part.start, part.end)))
    near = align(claim.text, Context([text[best.start : best.end]]), sentence=claim.text)
    shift = Span(best.start, best.end)
    return replace(
        found,
        changes=found.changes
        or tuple(
            replace(
                change,
                passage=unit.passage,
                start=unit.start + shift.start + change.start,
                end=unit.start + shift.start + change.end,
            )
            for change in near.changes
        ),
        flip=found.flip
        or (near.flip and Flip(near.flip.claim, _moved(near.flip.source, shift.start))),
        condition=found.condition or (near.condition and _moved(near.condition, shift.start)),
    )


def _moved(span: Span, by: int) -> Span:
    return Span(span.start + by, span.end + by)


def _stems(reading: Reading, start: int = 0, end: int | None = None) -> frozenset[str]:
    """Stems of a stretch's words outside its values."""
    last = len(reading.text) if end is None else end
    return frozenset(
        word.stem
        for word in content_words(reading.text)
        if start <= word.start < last
        and not any(value.start <= word.start < value.end for value in reading.values)
    )


def _restated(claim: Reading, source: Reading | None) -> tuple[float, float]:
    """Share of the claim's words that the source has, and of its nearest clause's the claim has."""
    if source is None:
        return 0.0, 0.0
    own = _stems(claim)
    kept = len(own & source.stems) / len(own) if own else 1.0
    covered = 0.0
    for clause in (*clauses(source.text), None):
        there = _stems(source) if clause is None else _stems(source, clause.start, clause.end)
        covered = max(covered, len(there & claim.stems) / len(there) if there else 0.0)
    return kept, covered if own or covered else 1.0


def _changed(
    change: Change,
    claim: Reading,
    source: Reading,
    context: Context,
    given: list[Value],
    few: bool,
) -> bool:
    """Whether one value was put in another one's place, and nothing else explains it."""
    own, other = change.claim, change.source
    if any(same_value(own, value) for value in given):
        return False
    if own.family == "name":
        if other.family != "name" or same_name(_unmarked(own.text), _unmarked(other.text)):
            return False
        return few or _stands_nowhere(own, claim, context, False)
    if not few and not _near_copy(claim, source):
        return False
    if is_row(source.text) or any(same_value(own, value) for value in source.values):
        return False
    if not _same_measure(own, other, claim) or _calculated(own, (claim, source)):
        return False
    return few or not context.places(own)


def _near_copy(claim: Reading, source: Reading) -> bool:
    kept, covered = _restated(claim, source)
    return kept >= SENSE_KEPT and covered >= SENSE_COVERED and bool(_stems(claim))


def _is_count(value: Value) -> bool:
    """Whether it is a small number of things, or a list of places, rather than a figure."""
    if value.text.startswith("["):
        return True
    return isinstance(value.of, Quantity) and not value.of.unit and abs(value.of.value) <= COUNTED


def _as_loss(value: Value, claim: Reading, context: Context) -> bool:
    """Whether "a loss of 4.2 million" is said of the source's "(4.2) million"."""
    if not isinstance(value.of, Quantity) or _LOSS.search(claim.text) is None:
        return False
    other = value.of
    turned = replace(other, value=-other.value, low=-other.high, high=-other.low)
    return bool(context.places(replace(value, of=turned)))


def _same_measure(own: Value, other: Value, claim: Reading) -> bool:
    if isinstance(own.of, Quantity) and isinstance(other.of, Quantity):
        if own.of.value == -other.of.value and _LOSS.search(claim.text):
            return False
        return same_kind(own.of, other.of) or own.of.value == other.of.value
    return own.family == other.family


def _calculated(value: Value, readings: Sequence[Reading]) -> bool:
    """Whether a figure is the sum, difference, product or share of others, or their growth."""
    if not isinstance(value.of, Quantity):
        return False
    size, dimension = to_base(value.of.value, value.of.unit)
    others = [
        to_base(one.of.value, one.of.unit)
        for reading in readings
        for one in reading.values
        if one is not value and isinstance(one.of, Quantity) and one.of.unit != "clock"
    ]
    years = {one.of.year for one in _dates(readings) if one.of.year}
    others += [
        (Decimal(late - early - short), "")
        for early, late in itertools.combinations(sorted(years), 2)
        for short in (0, 1)
    ]
    if value.of.unit == "y" or not dimension:
        if any(number == value.of.value for number, kind in others if not kind):
            return True
    alike = [number for number, kind in others if kind == dimension and number != size]
    bare = [number for number, kind in others if not kind]
    pairs = list(itertools.combinations(alike, 2))
    made = {a + b for a, b in pairs} | {abs(a - b) for a, b in pairs}
    made |= {a * b for a in alike for b in bare}
    if value.of.kind == "percent":
        kinds = {kind for _, kind in others}
        for kind in kinds:
            sizes = {number for number, other in others if other == kind and number}
            made |= {100 * a / b for a in sizes for b in sizes}
            made |= {abs(100 * a / b - 100) for a in sizes for b in sizes}
    return any(abs(one - size) <= ROUNDED * abs(size) for one in made if one)


def _dates(readings: Iterable[Reading]) -> list[Any]:
    return [
        one for reading in readings for one in reading.of("date") if isinstance(one.of, DateMention)
    ]


_CALENDAR: Final = frozenset(
    """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday christmas easter day days utc gmt cet
    cest est pst eve new year english french german spanish italian dutch czech polish norwegian
    mid early late jan feb mar apr jun jul aug sep sept oct nov dec q1 q2 q3 q4 boxing s""".split()
)
_SOURCES: Final = re.compile(
    r"(?i)\b(?:passages?|documents?|documentation|docs|context|sources?|provided|excerpts?|results?)\b"
)
_MONTHS: Final = re.compile(r"\d{1,2}/\d{2,4}|\[.*|Dear .*")
_OPENS: Final = re.compile(r"(?:\A|[.!?:;|*_>\"\u201c(\u2013\u2022-])\s*\Z|\n\s*\Z")
_KEY: Final = re.compile(r"[\"']?\s*[:=](?!=)")
_SIGNED: Final = re.compile(r"[_/]|::|--|\d|[a-z][A-Z]|\w\.\w|\(\)")


def _stands_nowhere(name: Value, claim: Reading, context: Context, small: bool) -> bool:
    """Whether a name is one, and no form of it stands in any passage."""
    text = name.text
    words = set(re.split(r"\W+", plain(text)))
    if (
        (words <= _CALENDAR and not small)
        or _MONTHS.fullmatch(text)
        or _KEY.match(claim.text, name.end)
    ):
        return False
    denied = negations(claim.text) and _SOURCES.search(claim.text)
    bare_name = not _stems(claim) and not _FIGURES.search(text)
    if denied or bare_name or is_silent(claim.text) or len(_FOREIGN.findall(claim.text)) > 1:
        return False
    if (
        not _SIGNED.search(text)
        and len(text.split()) == 1
        and (_OPENS.search(claim.text[: name.start]) or text.isupper())
    ):
        # A word with a capital that opens something is no name for that.
        return False
    figures = _FIGURES.findall(text)
    if figures and all(map(context.has_figure, figures)):
        # The figures of "Python 3.9" and "clause 4.6" stand alone as well.
        return False
    bare = text.strip("_[]()")
    if any(bare.lower() in passage.lower() for passage in context.told):
        return False
    return not any(map(context.has_name, (text, bare, _unmarked(text))))


# In other languages more words than names begin with a capital.
_FOREIGN: Final = re.compile(
    r"(?i)\b(?:der|die|das|und|ist|nicht|ich|eine?|keine?|wurde|wird|mit|dazu|le|les|des|est|une"
    r"|el|los|las|una|que|por)\b"
)
_FIGURES: Final = re.compile(r"\d+(?:\.\d+)*")
_UMLAUTS: Final = str.maketrans(
    {
        "\u00e4": "ae",
        "\u00f6": "oe",
        "\u00fc": "ue",
        "\u00df": "ss",
        "\u00f8": "oe",
        "\u00e5": "aa",
        "\u0142": "l",
        "\u00c4": "Ae",
        "\u00d6": "Oe",
        "\u00dc": "Ue",
    }
)


_ERA: Final = re.compile(r"\bB\.?C\.?E\.?(?!\w)|\bBCE\b")


def _unmarked(text: str) -> str:
    """Letters as they are written where umlauts and strokes cannot be."""
    return _ERA.sub("BC", text.translate(_UMLAUTS))
