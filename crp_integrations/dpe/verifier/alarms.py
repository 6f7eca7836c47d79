"""Which differences between a claim and its source are reported.

Most differences that show without reading are differences of wording. One is reported where the
claim restates a clause of the source, so that what differs was changed, or where the claim names
something that stands nowhere. Everything else is left to a judge: silence comes first.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import Alignment, Change, align
from crp_integrations.dpe.verifier.opposition import Flip
from crp_integrations.dpe.verifier.value_origins import is_calculated, is_loss, same_measure
from crp_integrations.dpe.verifier.values import Reading, Value, read, same_name, same_value
from crp_integrations.language.blocks import is_row
from crp_integrations.language.claim_kinds import is_silent
from crp_integrations.language.claims import clauses
from crp_integrations.language.negation import find_conditions, negations, without_answer
from crp_integrations.language.quantities import Quantity
from crp_integrations.language.text import Span, plain
from crp_integrations.language.words import content_words

# Words beside the value from which a sentence can be told from others.
FEWEST_WORDS: Final = 3


@dataclass(frozen=True, slots=True)
class Restated:
    """How closely a claim restates a sentence, by the words outside of values.

    Attributes:
        kept: share of the claim's words that the sentence has.
        covered: share of the nearest clause's words, or of the sentence's, that the claim has.
        words: how many words of the sentence the claim has.
    """

    kept: float
    covered: float
    words: int

    @property
    def loosely(self) -> bool:
        """Whether it says the same about the same, by half of the words."""
        return self.kept >= 0.6 and self.covered >= 0.5

    @property
    def closely(self) -> bool:
        """Whether it has nearly all words of a clause, and hardly any other."""
        return self.kept >= 0.9 and self.covered >= 0.75

    @property
    def wholly(self) -> bool:
        """Whether it repeats a clause of some length word for word, whatever it adds."""
        whole = self.kept == self.covered == 1.0 and self.words > 0
        return whole or (self.kept >= 0.6 and self.covered >= 0.9 and self.words >= FEWEST_WORDS)


LONG: Final = 300
# Where a sentence ends that was not cut, or a subordinate clause begins.
_PART: Final = re.compile(
    r"(?<=[.!?])\s+(?=[A-Z])"
    r"|,?\s+(?=(?:when|if|unless|until|because|while|where|provided|so that)\b)"
)
NOT_AT_ALL: Final = Restated(0.0, 0.0, 0)


def stems_of(reading: Reading, start: int = 0, end: int | None = None) -> frozenset[str]:
    """Stems of a stretch's words outside its values."""
    last = len(reading.text) if end is None else end
    return frozenset(
        word.stem
        for word in content_words(reading.text)
        if start <= word.start < last
        and not any(value.start <= word.start < value.end for value in reading.values)
    )


def restated(claim: Reading, source: Reading) -> Restated:
    """How closely a claim restates a sentence or one of its clauses."""
    own, every = stems_of(claim), stems_of(source)
    kept = len(own & source.stems) / len(own) if own else 1.0
    best = Restated(kept, 0.0 if every else 1.0, 0)
    parts = [stems_of(source, part.start, part.end) for part in clauses(source.text)]
    ends = [0, *(match.start() for match in _PART.finditer(source.text)), len(source.text)]
    parts += [stems_of(source, low, high) for low, high in itertools.pairwise(ends)]
    if len(source.text) > LONG and claim.words:
        # A stretch without sentence ends: as much of it as the claim is long.
        first = claim.words[0].stem
        parts += [
            stems_of(source, word.start, word.start + len(claim.text))
            for word in source.words
            if word.stem == first
        ]
    for there in (every, *parts):
        if there:
            had = len(there & claim.stems)
            best = max(best, Restated(kept, had / len(there), had), key=_closeness)
    return best


def _closeness(how: Restated) -> tuple[bool, float, int]:
    return how.wholly, how.covered, how.words


# A context of no more sentences and figures is short: a claim is about it, and little can be
# calculated from it.
SHORT_UNITS: Final = 8
SHORT_FIGURES: Final = 12
# Fewer still: whatever stands in the place of a figure was put there.
FEW_UNITS: Final = 4
FEW_FIGURES: Final = 4
# Numbers up to this count what a text names anyway.
COUNTED: Final = 10
# Share of a claim's words that the nearest sentence has at most where it is about something else.
FOREIGN: Final = 0.5


def reported(
    found: Alignment, claim: Reading, context: Context, known: Iterable[str] = ()
) -> Alignment:
    """The alignment with the differences that are reported, and no others.

    Spec: CRP-SPEC-005 §5.2, §5.3 (decision D10)

    Args:
        known: texts that are given without a source, such as the question.
    """
    given = [value for text in known for value in read(text).values]
    if opening := _attribution(claim.text):
        # Blanks in its place keep every offset.
        text = " " * opening + claim.text[opening:]
        claim, found = read(text), align(text, context, sentence=text, known=known)
    small = len(context.units) <= FEW_UNITS
    if small and found.units:
        found = _by_clause(found, claim, context)
    source = read(context.text(found.units[0])) if found.units else None
    how = NOT_AT_ALL if source is None else restated(claim, source)
    figures = sum(len(reading.of("quantity", "date")) for reading in context.readings)
    few = figures <= FEW_FIGURES
    short = few or (len(context.units) <= SHORT_UNITS and figures <= SHORT_FIGURES)
    changes = tuple(
        change
        for change in found.changes
        if source is not None and _changed(change, claim, source, context, given, how, short)
    )
    # What replaces nothing may still stand nowhere.
    open_ = [change.claim for change in found.changes if change not in changes]
    if source is not None:
        start = found.units[0].start
        changes = tuple(_in_its_place(change, claim, source, start) for change in changes)
    names = {
        id(value)
        for value in (*found.untraced, *open_)
        if value.family == "name" and _stands_nowhere(value, claim, context, small)
    }
    # A sentence about something else, with names that stand nowhere, is invented with its figures.
    foreign = bool(names) and how.kept <= FOREIGN
    untraced = tuple(
        value
        for value in sorted((*found.untraced, *open_), key=lambda one: one.start)
        if not any(same_value(value, other) for other in given)
        and (
            id(value) in names
            or (
                value.family != "name"
                and (short or foreign)
                and (how.loosely or foreign or not _is_count(value))
                and _has_no_source(value, claim, context, foreign)
            )
        )
    )
    flip = found.flip
    if flip is None or source is None or not _opposes(flip, claim, source, how, small):
        flip = None
    return replace(
        found,
        changes=changes,
        untraced=untraced,
        flip=flip,
        condition=_dropped(found.condition, claim, source, small) if source else None,
    )


def _opposes(flip: Flip, claim: Reading, source: Reading, how: Restated, small: bool) -> bool:
    """Whether a claim says of just the same that it is otherwise."""
    if is_row(source.text) or is_row(claim.text) or len(claim.words) < FEWEST_WORDS - 1:
        return False
    if source.text.rstrip().endswith("?"):
        return False
    # The word that was turned is none that was added.
    own = stems_of(claim) - (stems_of(claim, flip.claim.start, flip.claim.end) - source.stems)
    kept = len(own & source.stems) / len(own) if own else how.kept
    beside = replace(how, kept=kept)
    if small:
        return beside.loosely
    denied = len(negations(source.text))
    if denied > 1 or (
        denied == len(negations(without_answer(claim.text))) and _whole(flip, claim, source)
    ):
        return False
    return beside.closely or beside.wholly


def _whole(flip: Flip, claim: Reading, source: Reading) -> bool:
    """Whether neither side has a word of its own that was turned."""
    spans = ((flip.claim, claim), (flip.source, source))
    turned = any(span.end - span.start >= len(one.text) - 1 for span, one in spans)
    return turned or bool(negations(without_answer(claim.text)))


def _dropped(condition: Span | None, claim: Reading, source: Reading, small: bool) -> Span | None:
    """The condition, where the claim restates the rest of the sentence and has none itself."""
    if condition is None or is_row(source.text) or is_row(claim.text):
        return None
    low = source.text.rfind(";", 0, condition.start) + 1
    high = source.text.find(";", condition.end)
    own = stems_of(claim)
    rest = stems_of(source, low, high if high >= 0 else None).difference(
        *(
            stems_of(source, one.start, one.end)
            for one in (condition, *find_conditions(source.text))
        )
    )
    kept = len(own & source.stems) / len(own) if own else 1.0
    covered = len(rest & claim.stems) / len(rest) if rest else float(not low)
    how = Restated(kept, covered, len(rest & claim.stems))
    wholly = how.wholly and kept >= 0.9 and how.words >= FEWEST_WORDS - 1
    if not (how.loosely if small else wholly):
        return None
    bound = _BOUND.search(condition.of(source.text)) and _BOUNDED.search(claim.text)
    # A condition in other words may be this one.
    own_words = [one.of(claim.text).lower() for one in find_conditions(claim.text)]
    other = any(words not in source.text.lower() for words in own_words)
    return None if bound or other else condition


_COMPARED: Final = re.compile(
    r"(?i)(?:\s[^\s.,;:]+){0,2}?\s(?P<word>higher|lower|above|below|more|fewer|less|longer|shorter|earlier"
    r"|later|left|remaining|over|under|short)\b"
)
_BOUND: Final = re.compile(r"(?i)\bat (?:least|most)\b|\bup to\b")
_BOUNDED: Final = re.compile(
    r"(?i)\bor (?:more|less|longer|fewer|above|below)\b|\b(?:minimum|maximum|limit)\b"
    r"|[\u2264\u2265<>+]"
    r"|\bno (?:more|less|fewer|later) than\b"
)


def _by_clause(found: Alignment, claim: Reading, context: Context) -> Alignment:
    """The alignment with the clause that the claim restates, where the sentence has several."""
    unit = found.units[0]
    text = context.text(unit)
    parts = clauses(text)
    if len(parts) < 2 or not found.lexical:
        return found
    own = stems_of(claim)
    source = read(text)
    best = max(parts, key=lambda part: len(own & stems_of(source, part.start, part.end)))
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
        condition=found.condition or (near.condition and _moved(near.condition, shift.start)),
    )


def _moved(span: Span, by: int) -> Span:
    return Span(span.start + by, span.end + by)


_SOURCE: Final = (
    r"(?:helper|tools?|agent|assistant|search|results?|documents?|documentation|docs|context"
    r"|sources?|passages?|text|pages?|data|database|information|facts?)"
)
_ATTRIBUTED: Final = re.compile(
    r"(?i)\W*(?:(?:according to|based on|as per|per|as (?:stated|noted|said|shown) (?:in|by))\s"
    rf"(?:\w+\s){{0,3}}{_SOURCE}\b[^,.;:]{{0,40}}[,:]\s"
    rf"|(?:my|the|our|your)\s(?:\w+\s)?{_SOURCE}\s"
    r"(?:says?|said|states?|reports?|notes?|shows?|tells? (?:me|us)|found|mentions?)\s(?:that\s)?)"
)


def _attribution(text: str) -> int:
    """Where a claim begins behind "According to the tool," or "My helper says that"."""
    match = _ATTRIBUTED.match(text)
    return match.end() if match else 0


def _changed(
    change: Change,
    claim: Reading,
    source: Reading,
    context: Context,
    given: list[Value],
    how: Restated,
    short: bool,
) -> bool:
    """Whether one value was put in another one's place, and nothing else explains it."""
    own, other = change.claim, change.source
    if any(same_value(own, value) for value in given):
        return False
    if own.family == "name":
        if (
            other.family != "name"
            or plain(own.text) in _ZONES
            or is_row(claim.text)
            or is_row(source.text)
            or same_name(_unmarked(own.text), _unmarked(other.text))
        ):
            return False
        return how.wholly or (
            how.loosely and (short or _stands_nowhere(own, claim, context, False))
        )
    if is_row(source.text) or is_row(claim.text) or not same_measure(own, other, claim):
        return False
    compared = _COMPARED.match(claim.text, own.end)
    if compared and plain(compared["word"]) not in plain(source.text):
        # "1,000 higher" and "two above the target" are calculated.
        return False
    if how.wholly and how.kept >= 0.75 and (short or how.words >= FEWEST_WORDS - 1):
        # A copy with one other figure, wherever else that figure stands.
        return True
    if any(same_value(own, value) for value in source.values) or is_calculated(
        own, (claim, source)
    ):
        return False
    if short and how.kept >= 0.6 and _has_no_source(own, claim, context, False):
        return True
    return (how.closely or how.wholly) and bool(stems_of(claim)) and not context.places(own)


def _in_its_place(change: Change, claim: Reading, source: Reading, start: int) -> Change:
    """The change, with the one value that the claim does not state for one that it states itself.

    Of `{"flight": 417, "seats": 12}`, "21 seats on flight 417" has 21 in the place of 12.
    """
    other = change.source
    if other.family == "name" or not _states(claim, other):
        return change
    free = [one for one in source.values if one.family == other.family and not _states(claim, one)]
    if len(free) != 1:
        return change
    return replace(change, source=free[0], start=start + free[0].start, end=start + free[0].end)


def _states(claim: Reading, value: Value) -> bool:
    return re.search(rf"(?<!\w){re.escape(value.text)}(?!\w)", claim.text) is not None


def _has_no_source(value: Value, claim: Reading, context: Context, foreign: bool) -> bool:
    """Whether a figure neither stands anywhere nor follows; of something else none follows."""
    return not (
        context.places(value)
        or is_calculated(value, (claim,) if foreign else (claim, *context.readings))
        or is_loss(value, claim, context)
    )


def _is_count(value: Value) -> bool:
    """Whether it is a small number of things, or a list of places, rather than a figure."""
    if value.text.startswith("["):
        return True
    return isinstance(value.of, Quantity) and not value.of.unit and abs(value.of.value) <= COUNTED


_CALENDAR: Final = frozenset(
    """january february march april may june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday christmas easter day days utc gmt cet
    cest est pst eve new year english french german spanish italian dutch czech polish norwegian
    mon tue tues wed thu thur thurs fri sat sun yes no none ok okay
    mid early late jan feb mar apr jun jul aug sep sept oct nov dec q1 q2 q3 q4 boxing s""".split()
)
_ZONES: Final = frozenset("utc gmt cet cest est edt pst pdt z".split())
_CONSTANTS: Final = frozenset("true false none null nan".split())
_LETTERS: Final = re.compile(r"[^\W\d_\u00b2\u00b3\u00b9]{2}|[A-Z]\d")
# "level 4" and "figure 52" are words before a figure; these name what they number.
_NUMBERED: Final = re.compile(
    r"(?!(?:version|release|section|clause|article|chapter|annex|appendix|rule|step|form)s?\b)"
    r"[a-z]+\s[\d.,]+"
)
_SOURCES: Final = re.compile(
    r"(?i)\b(?:passages?|documents?|documentation|docs|context|sources?|provided|excerpts?|results?)\b"
)
_MONTHS: Final = re.compile(r"\d{1,2}/\d{2,4}|\[.*|Dear .*")
_OPENS: Final = re.compile(r"(?:\A|[.!?:;|*_>\"\u201c(\u2013\u2022-])\s*\Z|\n\s*\Z")
_BEGINS: Final = re.compile(r"(?:\A|[.!?]\s+|\n\s*)(?:[-*\u2022]\s*|\d+[.)]\s*|[*_\"\u201c(]+)*\Z")
_KEY: Final = re.compile(r"[\"']?\s*[:=](?!=)")
_SIGNED: Final = re.compile(r"[_/]|::|--|\d|[a-z][A-Z]|\w\.\w|\(\)")


def _stands_nowhere(name: Value, claim: Reading, context: Context, small: bool) -> bool:
    """Whether a name is one, and no form of it stands in any passage."""
    text = name.text
    if _BEGINS.search(claim.text[: name.start]) and not _SIGNED.search(text):
        # In "Hi Tove" and "Leave Bekele" the first word has its capital from the sentence.
        text = text.partition(" ")[2] or text
    first = text == name.text
    words = set(re.split(r"\W+", plain(text)))
    if (
        (words <= _CALENDAR and not small and "-" not in text)
        or words <= _CONSTANTS
        or _LETTERS.search(text) is None
        or _MONTHS.fullmatch(name.text)
        or _NUMBERED.fullmatch(name.text)
        or _KEY.match(claim.text, name.end)
    ):
        return False
    denied = negations(claim.text) and _SOURCES.search(claim.text)
    bare_name = not _FIGURES.search(text) and not re.sub(r"[\W_]", "", claim.text.replace(text, ""))
    if denied or bare_name or is_silent(claim.text) or len(_FOREIGN.findall(claim.text)) > 1:
        return False
    if (
        not _SIGNED.search(text)
        and len(text.split()) == 1
        and first
        and (_OPENS.search(claim.text[: name.start]) or text.isupper())
    ):
        # A word with a capital that opens something is no name for that.
        return False
    figures = _FIGURES.findall(text)
    if figures and all(map(context.has_figure, figures)):
        # The figures of "Python 3.9" and "clause 4.6" stand alone as well.
        return False
    bare = text.strip("_[]()")
    plainly = _unmarked(bare).lower()
    if any(plainly in _unmarked(passage).lower() for passage in context.told):
        return False
    return not any(map(context.has_name, (text, bare, _unmarked(text))))


# In other languages more words than names begin with a capital.
_FOREIGN: Final = re.compile(
    r"(?i)\b(?:der|den|dem|die|das|und|ist|nicht|nichts|ich|eine?|keine?|wurde|wird|mit|dazu|leider"
    r"|steht|aus|zu|von|le|les|des|est|une|dans|el|los|las|una|que|por|en)\b"
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
