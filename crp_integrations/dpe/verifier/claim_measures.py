"""What the fitted verifier measures of an answer: a row for each claim and one for each word."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Final

import numpy as np

from crp_integrations.dpe.records import Claim
from crp_integrations.dpe.verifier.features import Alignment
from crp_integrations.dpe.verifier.source_records import Records
from crp_integrations.dpe.verifier.word_measures import (
    Flags,
    Floats,
    Ints,
    Read,
    Source,
    Words,
    read_words,
    word_columns,
    words_of,
)
from crp_integrations.language.identifiers import gist
from crp_integrations.language.negation import negations
from crp_integrations.language.text import fold
from crp_integrations.vocabulary import Checked, ClaimType


@dataclass(frozen=True, slots=True)
class Cues:
    """Words that are counted.

    Attributes:
        openings: of every match some word begins with one of these letters. A text that has no
            such word is not searched, and a claim holds cues of few kinds.
    """

    pattern: re.Pattern[str]
    openings: tuple[str, ...]

    def count(self, text: str) -> int:
        """How many stand in a text.

        >>> HEDGES.count("It may often rain."), HEDGES.count("It rained.")
        (2, 0)
        """
        known = gist(text).words
        if known is not None and not any(map(methodcaller("startswith", self.openings), known)):
            return 0
        return len(self.pattern.findall(text))


HEDGES: Final = Cues(
    re.compile(
        r"(?i)\b(?:may|might|could|possibl[ey]|perhaps|likely|probabl[ey]|seem\w*|appear\w*"
        r"|suggest\w*|potential\w*|generally|typically|often|usually|sometimes|can)\b"
    ),
    tuple(
        """may might could possibl perhaps likely probabl seem appear suggest potential generally
        typically often usually sometimes can""".split()
    ),
)
ABSOLUTES: Final = Cues(
    re.compile(
        r"(?i)\b(?:all|always|every|only|none|never|most|best|any|each|entire\w*|exclusively|must"
        r"|completely|significant\w*|various|numerous|wide)\b"
    ),
    tuple(
        """all always every only none never most best any each entire exclusively must completely
        significant various numerous wide""".split()
    ),
)
SILENCES: Final = Cues(
    re.compile(
        r"(?i)\b(?:unable to|cannot|can't|could not|couldn't)\s+(?:\w+\s+){0,2}(?:answer|find"
        r"|determine|provide)|\b(?:does|do|did|is|are|was|were|has|have|not)\s*(?:not|n't)?\s+"
        r"(?:\w+\s+){0,2}"
        r"(?:mention|provide|specif|contain|include|state|address|indicate)\w*|\bno (?:mention"
        r"|information|indication|specific)\b"
    ),
    tuple(
        """answer find determine provide mention specif contain include state address indicat
        information""".split()
    ),
)
SOURCES: Final = Cues(
    re.compile(
        r"(?i)\b(?:passages?|context|documents?|article|text|report|according|review\w*|customers?"
        r"|mention\w*|states?|provided|given|based on|data)\b"
    ),
    tuple(
        """passage context document article text report according review customer mention state
        provided given based data""".split()
    ),
)
OPINIONS: Final = Cues(
    re.compile(
        r"(?i)\b(?:great|perfect|ideal|excellent|popular|favou?rite|amazing|delicious|unique|cozy"
        r"|welcoming|friendly|comfortable|convenient|charming|vibrant|must-visit|highlight\w*"
        r"|ensur\w*|help\w*|provid\w*|offer\w*|experience|suitable|well-known|known for|loved"
        r"|praise\w*)\b"
    ),
    tuple(
        """great perfect ideal excellent popular favo amazing delicious unique cozy welcoming
        friendly comfortable convenient charming vibrant must highlight ensur help provid offer
        experience suitable well known loved praise""".split()
    ),
)


BEST: Final = 6
# Whether a word stands in the nearest sentence, three, six, or around the nearest.
NEAREST: Final = ("w_best", "w_top3", "w_top6", "w_near_best")

_CLOSING = re.compile(
    r"(?i)\A\W*(?:overall|in (?:conclusion|summary|short|addition)|to sum|therefore|thus|finally"
    r"|additionally|moreover|furthermore|ultimately|it(?:'s| is) (?:important|worth|essential)"
    r"|please|remember|note|however|despite|while|although)\b"
)
_QUOTE = re.compile(r"[\"“]([^\"”]{8,300})[\"”]")


@dataclass(frozen=True, slots=True)
class Measured:
    """The measures of one answer.

    Attributes:
        claims: column name to one number a claim, in the order of the claims.
        words: column name to one number a word.
        word_claim: for each word the position of its claim.
        starts, ends: character offsets of each word in the answer.
    """

    claims: Mapping[str, Floats]
    words: Mapping[str, Floats]
    word_claim: Ints
    starts: Ints
    ends: Ints


def measure(
    answer: str,
    question: str,
    claims: Sequence[Claim],
    alignments: Sequence[Alignment | None],
    source: Source,
) -> Measured:
    """Measure an answer against its context."""
    words = words_of(answer)
    read = read_words(words, claims, alignments, source)
    asked = frozenset(words_of(question).stems)
    bounds = np.array([claim.start for claim in claims] or [0])
    place = np.searchsorted(bounds, words.starts, side="right") - 1
    ends = np.array([claim.end for claim in claims] or [0])
    inside = (place >= 0) & bool(claims) & (words.starts < ends[np.maximum(place, 0)])
    word_claim = np.where(inside, place, -1)
    columns = word_columns(read, asked, source)
    rows: list[dict[str, float]] = []
    for number, (claim, found) in enumerate(zip(claims, alignments, strict=True)):
        mine = np.flatnonzero(word_claim == number)
        rows.append(_claim_row(claim, found, mine, read, columns, asked, source))
    claim_columns = {
        name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())
    }
    _answer_columns(answer, question, claims, claim_columns, read, source)
    return Measured(claim_columns, columns, word_claim, words.starts, words.ends)


def _claim_row(
    claim: Claim,
    found: Alignment | None,
    mine: Ints,
    read: Read,
    columns: dict[str, Floats],
    asked: frozenset[str],
    source: Source,
) -> dict[str, float]:
    wording = source.wording
    words = read.words
    content = mine[~words.stop[mine]]
    ids = read.ids[content]
    weights = read.weights[content]
    total = float(weights.sum()) or 1.0
    known = read.known[content]
    unique, where = np.unique(ids[known], return_index=True)
    own = weights[known][where]
    unique_total = float(own.sum()) + float(weights[~known].sum()) or 1.0
    by_unit = wording.by_unit(unique, own)
    order = np.argsort(-by_unit, kind="stable")[:BEST]
    top = [int(u) for u in order if by_unit[u] > 0]
    best = float(by_unit[top[0]]) / unique_total if top else 0.0
    second = float(by_unit[top[1]]) / unique_total if len(top) > 1 else 0.0
    sets = {int(i): source.units_of(int(i)) for i in unique}
    weight_of = dict(zip(unique.tolist(), own.tolist(), strict=True))

    def union(units: set[int]) -> float:
        had = sum(w for i, w in weight_of.items() if not sets[i].isdisjoint(units))
        return float(had) / unique_total

    around = {top[0] - 1, top[0], top[0] + 1} if top else set()
    dense, _ = wording.together(unique, own) if len(unique) else (np.zeros(0), np.zeros(0))
    first_units, three, six = set(top[:1]), set(top[:3]), set(top)
    columns["w_in_claim"][mine] = np.arange(len(mine)) / max(1, len(mine))
    strongest = 0.0
    flags: list[list[bool]] = []
    nearby = np.zeros(len(mine))
    for nth, number in enumerate(read.ids[mine].tolist()):
        if number < 0:
            flags.append([False] * 4)
            continue
        units = sets.get(number)
        if units is None:
            units = source.units_of(number)
        flags.append([not units.isdisjoint(group) for group in (first_units, three, six, around)])
        if number in weight_of and len(dense):
            here = float(dense[wording.places_of(number)].max()) - weight_of[number]
            nearby[nth] = min(1.0, here / unique_total)
            strongest = max(strongest, here + weight_of[number])
    if flags:
        for name, flag in zip(NEAREST, np.array(flags, dtype=np.float64).T, strict=True):
            columns[name][mine] = flag
        columns["w_together"][mine] = nearby
    ordered = 0.0
    if top:
        there = wording.first_places(top[0])
        places = [there[number] for number in ids[known].tolist() if number in there]
        ordered = (
            sum(a < b for a, b in itertools.pairwise(places)) / (len(places) - 1)
            if len(places) > 1
            else 1.0
        )
    runs = read.runs[mine]
    # However it is spaced and quoted.
    text = " ".join(fold(claim.text).text.split())
    cues = len(negations(text))
    unknown = content[~known]
    unknown_words = [words.lower[at] for at in unknown.tolist()]
    numbers = sum(entity.kind in ("number", "quantity", "date") for entity in claim.entities)
    names = sum(entity.kind not in ("number", "quantity", "date") for entity in claim.entities)
    for entity in claim.entities:
        if entity.kind not in ("number", "quantity", "date"):
            columns["w_name"][(words.starts >= entity.start) & (words.ends <= entity.end)] = 1.0
    verdicts = _records(claim, read, columns, source.records)
    times, wrong_times = source.records.times(text)
    rated, wrong_rated = source.records.rated(text)
    quotes = _QUOTE.findall(text)
    row = {
        "c_words": float(len(mine)),
        "c_content": float(len(content)),
        "c_coverage": int(np.count_nonzero(known)) / len(known) if len(known) else 1.0,
        "c_rare_coverage": float(weights[known].sum()) / total if len(known) else 1.0,
        "c_best": best,
        "c_second": second,
        "c_margin": best - second,
        "c_two": union(set(top[:2])),
        "c_three": union(three),
        "c_six": union(six),
        "c_near_best": union(around),
        "c_together": strongest / unique_total,
        "c_ordered": ordered,
        "c_pairs": float(columns["w_pair_next"][mine].mean()) if len(mine) else 1.0,
        "c_run_mean": int(runs.sum()) / len(runs) if len(runs) else 0.0,
        "c_run_top": float(runs.max()) if len(runs) else 0.0,
        "c_run_share": int(np.count_nonzero(runs >= 3)) / len(runs) if len(runs) else 0.0,
        "c_unknown": float(len(unknown)),
        "c_unknown_prefix": float(sum(columns["w_prefix"][at] == 0.0 for at in unknown.tolist())),
        "c_unknown_long": max((len(w) for w in unknown_words), default=0) / 10.0,
        "c_unknown_form": float(sum(w.endswith(("ly", "ing", "ed")) for w in unknown_words)),
        "c_unknown_row": float(_longest_gap(known)),
        "c_asked": sum(s in asked for s in _stems(words, content)) / len(content)
        if len(content)
        else 0.0,
        "c_asked_unknown": float(sum(words.stems[at] in asked for at in unknown.tolist())),
        "c_numbers": float(numbers),
        "c_names": float(names),
        "c_specificity": claim.specificity,
        "c_cues": float(cues),
        "c_cue_differs": 0.0,
        "c_hedges": float(HEDGES.count(text)),
        "c_absolutes": float(ABSOLUTES.count(text)),
        "c_closing": float(_CLOSING.search(text) is not None),
        "c_silent": float(SILENCES.count(text) > 0),
        "c_source": float(SOURCES.count(text)),
        "c_opinion": float(OPINIONS.count(text)),
        "c_quotes": float(len(quotes)),
        "c_quotes_kept": float(sum(source.context.verbatim(q) for q in quotes)),
        "c_factual": float(claim.claim_type is ClaimType.FACTUAL),
        "c_procedural": float(claim.claim_type is ClaimType.PROCEDURAL),
        "c_opinion_kind": float(claim.claim_type is ClaimType.OPINION),
        "c_meta": float(claim.claim_type is ClaimType.META),
        "c_lexical": found.lexical if found is not None else 0.0,
        "c_changes": float(len(found.changes)) if found is not None else 0.0,
        "c_untraced": float(len(found.untraced)) if found is not None else 0.0,
        "c_untraced_names": _names(found),
        "c_flip": float(found is not None and found.flip is not None),
        "c_condition": float(found is not None and found.condition is not None),
        "c_yes": float(verdicts.count(1)),
        "c_no": float(verdicts.count(-1)),
        "c_unset": float(verdicts.count(0)),
        "c_times": float(times),
        "c_wrong_times": float(wrong_times),
        "c_rated": float(rated),
        "c_wrong_rated": float(wrong_rated),
        "c_checked": float(claim.checked is not Checked.NOT_CHECKED),
    }
    if found is not None:
        _values(claim, found, words, columns)
        if found.units:
            row["c_cue_differs"] = float(cues - len(negations(source.context.text(found.units[0]))))
    return row


def _stems(words: Words, places: Ints) -> list[str]:
    return [words.stems[at] for at in places.tolist()]


def _longest_gap(known: Flags) -> int:
    longest = here = 0
    for flag in known.tolist():
        here = 0 if flag else here + 1
        longest = max(longest, here)
    return longest


def _names(found: Alignment | None) -> float:
    return 0.0 if found is None else float(sum(v.family == "name" for v in found.untraced))


def _values(claim: Claim, found: Alignment, words: Words, columns: dict[str, Floats]) -> None:
    shift = claim.start - (len(claim.reads_as) - (claim.end - claim.start))

    def mark(name: str, start: int, end: int) -> None:
        if end > start and shift + start >= claim.start:
            inside = (words.starts < shift + end) & (words.ends > shift + start)
            columns[name][inside] = 1.0

    for value in found.untraced:
        mark("w_untraced", value.start, value.end)
    for change in found.changes:
        mark("w_changed", change.claim.start, change.claim.end)
    if found.flip is not None:
        mark("w_flipped", found.flip.claim.start, found.flip.claim.end)


def _records(claim: Claim, read: Read, columns: dict[str, Floats], records: Records) -> list[int]:
    verdicts = []
    for named in records.named(claim.text):
        inside = (read.words.starts < claim.start + named.end) & (
            read.words.ends > claim.start + named.start
        )
        columns["w_record"][inside] = (1.0, -1.0, -0.5)[0 if named.verdict > 0 else named.verdict]
        verdicts.append(named.verdict)
    return verdicts


def _answer_columns(
    answer: str,
    question: str,
    claims: Sequence[Claim],
    columns: dict[str, Floats],
    read: Read,
    source: Source,
) -> None:
    """What a claim is among the others, and what the whole answer is like."""
    count = len(claims)
    if not count:
        return
    for name in ("c_best", "c_rare_coverage", "c_three", "c_lexical", "c_run_share", "c_together"):
        values = columns[name]
        columns[f"r_{name[2:]}"] = values - values.mean()
    content = ~read.words.stop
    whole = {
        "a_claims": float(count),
        "a_words": _log(len(read.words)),
        "a_context": _log(source.wording.size),
        "a_ratio": _log(len(read.words)) - _log(source.wording.size),
        "a_coverage": float(read.known[content].mean()) if content.any() else 1.0,
        "a_run": float(read.runs.mean()) if len(read.runs) else 0.0,
        "a_best": float(columns["c_best"].mean()),
        "a_best_low": float(columns["c_best"].min()),
        "a_untraced": float((columns["c_untraced"] > 0).mean()),
        "a_no": float(columns["c_no"].sum()),
        "a_records": source.records.share,
        "a_question": float(bool(question)),
        "a_unended": float(not answer.rstrip().endswith((".", "!", "?", '"', ")", "”", "*"))),
        "a_lines": float(answer.strip().count("\n")) / max(1, count),
        "a_silent": float(columns["c_silent"].sum()),
    }
    for name, value in whole.items():
        columns[name] = np.full(count, value)
    place = np.arange(count)
    columns["p_place"] = place / max(1, count - 1)
    columns["p_first"] = (place == 0).astype(float)
    columns["p_last"] = (place == count - 1).astype(float)
    columns["p_from_end"] = np.minimum(count - 1 - place, 5).astype(float)
    before = np.concatenate([[columns["c_best"].mean()], columns["c_best"][:-1]])
    after = np.concatenate([columns["c_best"][1:], [columns["c_best"].mean()]])
    columns["p_best_before"], columns["p_best_after"] = before, after


def _log(value: int) -> float:
    """Logarithm of a count."""
    return float(np.log1p(value))
