"""Decides by words alone whether a judge's correction of a claim counts, and gives it its form.

Each of its values and names must stand in the evidence, the question, or the claim outside its
wrong words, or follow by arithmetic from the quotations of its verdict.
"""

from __future__ import annotations

import calendar
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Final

from crp_integrations.dpe.judge.belief import (
    CITATION,
    FUNCTION_WORDS,
    GERMAN,
    LEAST_LETTERS,
    MOST_GERMAN,
    matter_of,
    pieces_of,
    without_citations,
)
from crp_integrations.dpe.verifier.values import Value, same_value, values_of
from crp_integrations.language.dates import DateMention, dates
from crp_integrations.language.folded_text import Folded, locate
from crp_integrations.language.quantities import Quantity

if TYPE_CHECKING:
    from crp_integrations.dpe.records import Claim
    from crp_integrations.dpe.report_parts import Quotation

# Maximum number of numbers, dates and durations that are combined, so that the time is bounded.
MOST_TERMS: Final = 12
# Calendars in which a date without a year is tried: a common year, and the leap year before it.
YEARS: Final = (2025, 2024)
DAYS: Final = {"d": 1, "wk": 7, "fortnight": 14}
MONTHS: Final = {"mo": 1, "quarter": 3, "y": 12}
# Maximum number of days, weeks, months or years of a duration.
LONGEST_SPAN: Final = 10_000
BEGINS: Final = frozenset('.!?:|\n…"“„«(')
# Words in backticks, and names with points or underscores within, such as `k.dorsey`.
_CODE: Final = re.compile(r"`[^`\n]+`|(?<![\w.])(?:[^\W\d]\w*[._@])+\w{2,}")
_MARKUP: Final = re.compile(r"</?[^\W\d][^<>\n]*>?|<[^<>\s][^<>\n]*>|!?\[[^\]\n]*\]\(")
_BAR: Final = re.compile(r"(?<!\\)\|")
_STOP: Final = re.compile(r"[.!?…。！？؟।]+\Z")
# How a claim ends: a stop or joint, and the closing signs and citations after it.
TAIL: Final = re.compile(
    r"(?P<stop>[.!?…。！？؟।,;:]*)(?P<after>(?:\[\^?\w+\]|[*_)\]}\"'”’»`⁰¹²³⁴-⁹†‡])*)\Z"
)
_OPENERS: Final = re.compile(r"[*_(\[{\"“„«`]*")
_CLOSED: Final = str.maketrans("([{“„«", ")]}”“»")
_REMARK: Final = re.compile(r"[(\[{<][^()\[\]{}<>]*[)\]}>][.!]?\Z")
_CITED: Final = re.compile(r"[.!?](?:\[\^?\w+\]|[⁰¹²³⁴-⁹†‡])+\s")
_CITE: Final = rf"(?:{CITATION}|\[\^\w+\]|【[^】]*】)"
_STATED_CITES: Final = re.compile(_CITE, re.IGNORECASE)
# Also words and links in brackets, and a name with its year.
_ANY_CITE: Final = (
    rf"(?:{_CITE}|\[[^\[\]\n]+\](?:\([^()\s]+\))?"
    r"|\([^()\n]+(?:,|\bal\.)\s(?:1[5-9]|20)\d\d[a-z]?\))"
)
_CITES: Final = re.compile(_ANY_CITE, re.IGNORECASE)
_CLOSERS: Final = r"(?=[*_)}\]\"'”“’‘»«`]*\Z)"
_LAST_STATED: Final = re.compile(rf"(?:[.!?…,;:]*\s*{_CITE})+[.!?…,;:]*{_CLOSERS}", re.IGNORECASE)
_LAST_CITES: Final = re.compile(
    rf"(?:[.!?…,;:]*\s*{_ANY_CITE})+[.!?…,;:]*{_CLOSERS}", re.IGNORECASE
)
_LAST_ROUND: Final = re.compile(rf"\((?:[^()\n]|\([^()\n]*\))*\)[.!?…,;:]*{_CLOSERS}")
# "Corrected:" before a correction, and "(corrected)", "– corrected" or "Corrected." after it.
_NOTE: Final = re.compile(
    r"\A(?:[^\W\d]+ ){0,2}[^\W\d]+:\s+|(?<=[.!?])\s+[([{][^()[\]{}\d]+[)\]}][.!]?\Z"
    r"|\s+[([{][^()[\]{}\d]+[)\]}](?=[.!]?\Z)|\s+[-–—]\s+[a-zß-ÿ]+(?=[.!]?\Z)"
    r"|(?<=[.!?])\s+(?:Corr|Korr)[^\W\d]+[.!]?\Z"
)
# A number of a row, and blanks that are not the narrow ones within a value.
_NUMBERED: Final = re.compile(r"\s*\d{1,3}[.)]?\s*")
_BLANKS: Final = re.compile(r"[^\S\u00a0\u2007\u202f]+")
_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"\s*:\s*')
_MARK: Final = re.compile(r"(?:[-*+•]|#{1,6}|>)\s+")
HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


@dataclass(frozen=True)
class Grounds:
    """The texts in which a correction's values and names must stand.

    Attributes:
        text: evidence and question.
        translated: True if the answer is not in the language of its evidence, where names may
            have another form.
    """

    text: str
    translated: bool = False

    @cached_property
    def figures(self) -> frozenset[str]:
        """All figures, without separators."""
        return matter_of(self.text).values

    @cached_property
    def words(self) -> frozenset[str]:
        """All words in lower case."""
        normalized = unicodedata.normalize("NFKC", self.text)
        return frozenset(word.casefold() for word in pieces_of(normalized))

    def has(self, words: str) -> bool:
        """Whether words stand here."""
        return locate(words, self._folded) is not None

    def has_like(self, value: Value) -> bool:
        """Whether a value stands here, in the same or another form."""
        if value.of is None or self.has(value.text):
            return self.has(value.text)
        # Dates alone are read five times as fast as all values.
        others = self._dates if isinstance(value.of, DateMention) else self._values
        return any(same_value(value, other) for other in others)

    @cached_property
    def _folded(self) -> Folded:
        return Folded(self.text)

    @cached_property
    def _dates(self) -> list[Value]:
        mentions = dates(self.text)
        return [Value(day.start, day.end, day.text, "date", "date", day) for day in mentions]

    @cached_property
    def _values(self) -> list[Value]:
        return values_of(self.text)


def unfounded(
    fix: str | None,
    claim: Claim,
    wrong: tuple[int, int] | None,
    quotations: Sequence[Quotation],
    grounds: Grounds,
) -> str:
    """The first value, name or hidden sign of a correction that stands nowhere; empty for none.

    Args:
        wrong: offsets in the answer of the claim's wrong words; None for all of them.
        quotations: the words on which the verdict rests.
    """
    if not fix:
        return ""
    start, end = wrong or (claim.start, claim.end)
    rest = f"{claim.text[: start - claim.start]} {claim.text[end - claim.start :]}"
    own = Grounds(rest)
    known = own.figures | grounds.figures
    hidden = {sign for sign in fix if unicodedata.category(sign) in HIDDEN and sign not in "\n\t"}
    if strange := hidden - {*rest, *grounds.text}:
        return f"U+{ord(min(strange)):04X}"
    fix = without_citations(fix)
    terms = _terms_of([quotation.text for quotation in quotations], rest)
    covered = bytearray(len(fix))
    for value in values_of(fix):
        exact = isinstance(value.of, DateMention) or value.kind in ("url", "citation")
        figures = matter_of(value.text).values
        known_figures = bool(figures) and figures <= known and not exact
        if known_figures or own.has_like(value) or grounds.has_like(value) or terms.give(value):
            covered[value.start : value.end] = b"\x01" * (value.end - value.start)
        elif exact or value.family != "name":
            return value.text
    for match in _CODE.finditer(fix):
        if not (own.has(match.group()) or grounds.has(match.group())):
            return match.group().strip("`")
    words = own.words | grounds.words
    for match in _MARKUP.finditer(fix):
        if match.group() not in claim.text and match.group() not in grounds.text:
            return match.group()
    stated = Grounds(claim.text).words | grounds.words
    matter = set(pieces_of(unicodedata.normalize("NFKC", fix).casefold())) - FUNCTION_WORDS
    if not any(covered) and not any(
        word[0].isalnum() and _is_among(word, stated) for word in matter
    ):
        return fix[:40]
    german = len({word.casefold() for word in pieces_of(fix)} & GERMAN) >= MOST_GERMAN
    # Where only the first word is another one, it may be a name.
    at, last, begins = 0, "", fix.split()[1:] != claim.text.split()[1:]
    for written in pieces_of(fix):
        if not covered[at] and written[0].isdigit() and not matter_of(written).values <= known:
            return written
        if written[0].isalpha():
            named = not (begins or covered[at] or grounds.translated or german)
            if named and _is_capital(written) and not _is_among(written, words):
                return written
            loud = (
                written.isupper() and len(written) > 1 and not (covered[at] or grounds.translated)
            )
            if loud and not _is_among(written, stated):
                return written
        # A sign that may begin a sentence, a cell, a quotation or a bracket; not that of "Ms.".
        short = written == "." and last[:1].isupper() and len(last) < 4
        begins = (written in BEGINS and not short) or (begins and not written[0].isalnum())
        at, last = at + len(written), written
    return ""


def without_note(fix: str | None, claim: Claim, grounds: Grounds) -> str | None:
    """A correction without the judge's note on it, of whose words none stands anywhere."""
    for note in _NOTE.findall(fix or ""):
        words = {word for word in pieces_of(note.casefold()) if word.isalnum()} - FUNCTION_WORDS
        stated = Grounds(claim.text).words | grounds.words
        stands = note.strip().casefold() in claim.text.casefold() or not words
        # "No:" in the place of the claim's own "Yes:".
        stands |= (fix or "").startswith(note) and bool(_NOTE.match(claim.text))
        if not (stands or note.isupper() or any(_is_among(word, stated) for word in words)):
            fix = (fix or "").replace(note, "", 1)
    return fix


def _is_capital(word: str) -> bool:
    plain = word.casefold()
    return word[0] != plain[0] and len(word) >= LEAST_LETTERS and plain not in FUNCTION_WORDS


def _is_among(word: str, words: frozenset[str]) -> bool:
    folded = unicodedata.normalize("NFKC", word).casefold()
    return folded in words or folded.removesuffix("s") in words or f"{folded}s" in words


@dataclass(frozen=True)
class _Terms:
    """What the quotations and the rest of a claim give to compute with.

    Attributes:
        quoted, others: numbers of the quotations, and of the rest of the claim.
        counts: how many numbers the quotations have, and how many items each lists.
        days: dates of both.
        spans: durations of the quotations, in months and days.
    """

    quoted: tuple[float, ...]
    others: tuple[float, ...]
    counts: tuple[float, ...]
    days: tuple[DateMention, ...]
    spans: tuple[tuple[int, int], ...]

    def give(self, value: Value) -> bool:
        """Whether a value follows by at most two steps, the first of them from a quotation."""
        if isinstance(value.of, DateMention):
            return any(_is_on(value.of, day) for day in self._dates)
        if not isinstance(value.of, Quantity) or value.of.low != value.of.high:
            return False
        number = abs(float(value.of.value))
        decimals = max(0, -int(value.of.value.normalize().as_tuple().exponent))
        close = 0.5 * 10.0**-decimals + 1e-9
        place = bisect_left(self._results, number - close)
        return place < len(self._results) and self._results[place] <= number + close

    @cached_property
    def _results(self) -> list[float]:
        """The results of one and of two steps, without their signs, in order."""
        terms = (*self.quoted, *self.others)
        first = {x for a in self.quoted for b in terms for x in _computed(a, b)}
        second = {x for a in first for b in terms for x in _computed(a, b)}
        counted = {sum(self.quoted), *self.counts}
        return sorted(map(abs, first | second | counted))

    @cached_property
    def _dates(self) -> set[date]:
        none, results = (0, 0), set[date]()
        steps = [
            (sign * a[0] + other * b[0], sign * a[1] + other * b[1])
            for a, b in product((none, *self.spans), self.spans)
            for sign, other in product((1, -1), (1, -1))
        ]
        for day, year, (months, days) in product(self.days, YEARS, steps):
            if day.month and day.day:
                with suppress(ValueError, OverflowError):
                    end = _moved(date(day.year or year, day.month, day.day), months, days)
                    # The last day of a term is the one before it ends.
                    results |= {end, end - timedelta(days=1)}
        return results


def _terms_of(quoted: Sequence[str], rest: str) -> _Terms:
    values = [value for text in quoted for value in values_of(text)]
    others = values_of(rest)
    lengths = [value.of for value in values if isinstance(value.of, Quantity)]
    days = [value.of for value in (*values, *others) if isinstance(value.of, DateMention)]
    spans = [
        (
            int(length.value) * MONTHS.get(length.unit, 0),
            int(length.value) * DAYS.get(length.unit, 0),
        )
        for length in lengths
        if (length.unit in MONTHS or length.unit in DAYS) and length.value < LONGEST_SPAN
    ]
    numbers = _numbers(values)
    return _Terms(
        numbers,
        _numbers(others),
        (float(len(numbers)), *(1.0 + max(map(text.count, ",;\n|")) for text in quoted)),
        tuple(days[:MOST_TERMS]),
        tuple(spans[:MOST_TERMS]),
    )


def _numbers(values: Sequence[Value]) -> tuple[float, ...]:
    """The numbers of some values; a percentage also as a share."""
    numbers = dict[float, None]()
    for value in values:
        if isinstance(value.of, Quantity):
            for end in (value.of.low, value.of.high):
                numbers[float(end)] = None
                if value.of.unit == "%":
                    numbers[float(end) / 100] = None
                    numbers[1 + float(end) / 100] = None
        elif isinstance(value.of, DateMention) and value.of.day:
            numbers[float(value.of.day)] = None
    return tuple(numbers)[:MOST_TERMS]


def _computed(left: float, right: float) -> Iterator[float]:
    yield left + right
    yield left - right
    yield left * right
    if right:
        yield left / right
        yield 100 * left / right
    if left:
        yield right / left


def _moved(day: date, months: int, days: int) -> date:
    month = day.year * 12 + day.month - 1 + months
    year, month = divmod(month, 12)
    last = calendar.monthrange(year, month + 1)[1]
    return date(year, month + 1, min(day.day, last)) + timedelta(days=days)


def _is_on(mention: DateMention, day: date) -> bool:
    parts = ((mention.year, day.year), (mention.month, day.month), (mention.day, day.day))
    return mention.month is not None and all(own in (None, other) for own, other in parts)


def in_row(old: str, fix: str, wrong: tuple[int, int] | None) -> str | None:
    """A table row with the cells that its correction changes; None for other cells.

    Args:
        wrong: where the wrong words stand in it; None for all of it.
    """
    begin = wrong[0] if wrong else 0
    bar = _BAR if "|" in old else re.compile("\t")
    fix = fix.strip()
    cells = bar.split(old)
    fixed = bar.split(fix)
    if len(fixed) == len(cells) - 2 and not (cells[0].strip() or cells[-1].strip()):
        # The correction lacks the bars around the row.
        fixed = ["", *fixed, ""]
    if len(cells) != len(fixed) or "\n" in fix:
        return None
    made, at = list[str](), 0
    for cell, new in zip(cells, fixed, strict=True):
        own, number = cell.strip(), not "".join(made).strip(" |") and _NUMBERED.fullmatch(cell)
        same = own == new.strip() or not own or (number and not at <= begin <= at + len(cell))
        changed = own if same else _with_citations(own, new.strip())
        if changed is None:
            return None
        made.append(cell.replace(own, changed, 1))
        at += len(cell)
        made.append(old[at : at + 1])
        at += 1
    return "".join(made)


def in_line(old: str, fix: str, wrong: tuple[int, int] | None = None) -> str | None:
    """A correction with what stands around a claim's wrong words: stop, first letter, citations."""
    new = _BLANKS.sub(" ", fix).strip()
    if not _MARK.match(old):
        new = _MARK.sub("", new, count=1) if _MARK.match(new) else new
    if _REMARK.match(new) and not _REMARK.match(old):
        return None
    if len(_CITED.findall(old)) > len(_CITED.findall(new)):
        # The claim has a sentence more than its correction.
        return None
    cited = _with_citations(old, new, wrong)
    if cited is None:
        return None
    new = cited
    key, fixed = _KEY.match(old), _KEY.match(new)
    if key and fixed and "".join(key.group().split()) == "".join(fixed.group().split()):
        # The blanks around a field's colon stay.
        new = key.group() + new[fixed.end() :]
    own, tail = TAIL.search(old), TAIL.search(new)
    if own and tail and not own["stop"]:
        new = new[: tail.start()] if _STOP.search(tail.group()) else new
    elif own and tail and not (tail["stop"] and tail["after"]):
        bare = new[: tail.start()] if tail["stop"] else new.removesuffix(own["after"])
        new = bare + own.group()
        opening = _OPENERS.match(old)
        signs = opening.group() if opening else ""
        if signs[::-1].translate(_CLOSED) == own["after"] and not new.startswith(signs):
            new = signs + new
    head, first = next(iter(old.split()), ""), next(iter(new.split()), "")
    if head != first and head.casefold() == first.casefold():
        new = head + new[len(first) :]
    return new if any(sign.isalnum() for sign in new) else None


def _with_citations(old: str, new: str, wrong: tuple[int, int] | None = None) -> str | None:
    """A correction with the citations that end its claim; None if it would lose another one."""
    start, end = wrong or (len(old), 0)
    own = [
        match.group()
        for match in _CITES.finditer(old)
        if _STATED_CITES.fullmatch(match.group()) or match.end() <= start or end <= match.start()
    ]
    if len(_CITES.findall(new)) >= len(own):
        lost = wrong and _LAST_ROUND.search(old, end) and not _LAST_ROUND.search(new)
        return None if lost else new
    last = (wrong and _LAST_CITES.search(old, end)) or _LAST_STATED.search(old)
    if last is None or _CITES.search(new) or len(_CITES.findall(last.group())) < len(own):
        return None
    closers = old[last.end() :]
    closers = closers if new.endswith(closers) else ""
    return _STOP.sub("", new.removesuffix(closers)) + last.group() + closers
