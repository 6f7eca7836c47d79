"""Word search with the scores of SQLite's FTS5.

A search reads rows of `postings` by falling bound, so that frequent stems come last, until no
unread row can change the k best facts (MaxScore). Of many terms it leaves out the common ones.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crp_integrations.language.words import stems_of
from crp_integrations.stores import rules
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.postgres.postings import (
    K1,
    POSTING,
    Postings,
    hashed,
    length_factor,
    unpacked,
)
from crp_integrations.stores.rules import RETRIEVABLE_SQL, Among

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

# A term in half of all facts or more has this weight.
_MIN_IDF: Final = 1e-6
# Minimum postings of one round trip, and maximum facts whose missing stems are looked up.
_READ: Final = 4_096
_LOOKED_UP: Final = 2_048
# What a row in the order of ids costs, in rows that are sorted.
_PAGED: Final = 4
# Allows for the rounding of sums.
_MARGIN: Final = 1.0 + 1e-9

_DIRECTORY = (
    "SELECT stem, segment, rank, size, reach, mean, CASE WHEN rank = 0 THEN entries END "
    "FROM postings WHERE stem = ANY(?)"
)
_ENTRIES = (
    "SELECT stem, entries FROM postings JOIN unnest(?::text[], ?::bigint[], ?::int[]) "
    "AS wanted (stem, segment, rank) USING (stem, segment, rank)"
)
_IDS = f"SELECT fact, fact_id FROM facts WHERE fact = ANY(?) AND {RETRIEVABLE_SQL}"
# Of facts with equal scores, of which there may be as many as facts, the first by id.
_TIED_IDS = f"{_IDS} ORDER BY fact_id LIMIT ?"
_FIRST_IDS = f"SELECT fact, fact_id FROM facts WHERE {RETRIEVABLE_SQL} ORDER BY fact_id LIMIT ?"
_SEQUENCES = "SELECT fact, stems FROM stem_sequences WHERE fact = ANY(?)"
# The facts with a phrase, packed, each with its number of stems if the phrase is there once, else 0
# for "count it". The server looks for the bytes, which may also begin within a stem's hash.
_WITH_PHRASE = """SELECT string_agg(int8send(fact) || int4send(
        CASE WHEN at % 8 = 1 AND position(? IN substring(stems FROM at + 8)) = 0
        THEN length(stems) / 8 ELSE 0 END
    ), '') FROM (
        SELECT fact, stems, position(? IN stems) AS at FROM stem_sequences{where} OFFSET 0
    ) AS looked_at WHERE at > 0"""
_EVERY_FACT, _SOME_FACTS = (
    _WITH_PHRASE.replace("{where}", where) for where in ("", " WHERE fact = ANY(?)")
)
_MATCH: Final = np.dtype([("fact", ">i8"), ("words", ">i4")])


def _codes(stems: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Hashes of stems, as in `stem_sequences.stems`."""
    return np.frombuffer(b"".join(map(hashed, stems)), dtype="<u8")


@dataclass(slots=True)
class _TermPostings:
    """The postings of a stem or phrase as far as they were read.

    Attributes:
        code: hash of the stem.
        weight: inverse document frequency.
        unread: bound, key and size of each unread row, highest bound first.
    """

    code: int
    weight: float
    mean: float
    read: list[Postings]
    unread: list[tuple[float, tuple[str, int, int], int]] = field(default_factory=list)

    @property
    def bound(self) -> float:
        """Maximum score of a posting that was not read."""
        return self.unread[0][0] if self.unread else 0.0

    def scores(
        self, times: npt.NDArray[np.integer], words: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.float64]:
        # In the order of FTS5's operations, so that the sums are equal bit by bit.
        return self.weight * ((times * (K1 + 1.0)) / (times + length_factor(words, self.mean)))


def search(
    connection: PostgresConnection, terms: Sequence[str], k: int, live: tuple[int, int]
) -> list[tuple[str, float]]:
    """Best retrievable facts that contain any of the terms: id and BM25 score, ties by id.

    Args:
        live: number of retrievable facts, and of their words.
    """
    stems_by_term = {term: stems for term in terms if (stems := stems_of(term))}
    if k <= 0 or not stems_by_term or not live[0] or not live[1]:
        return []
    rows_by_stem: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    wanted = sorted({stem for stems in stems_by_term.values() for stem in stems})
    for stem, *row in connection.rows(_DIRECTORY, [Among(wanted)]):
        rows_by_stem[stem].append(tuple(row))

    def is_common(term: str) -> bool:
        return sum(int(row[2]) for row in rows_by_stem[stems_by_term[term][0]]) > rules.COMMON

    def matches(of: Sequence[str]) -> list[tuple[str, float]]:
        stems = [stems_by_term[term] for term in of if term in stems_by_term]
        return _matches(connection, stems, k, rows_by_stem, live)

    asked = list(dict.fromkeys(terms))
    rare = rules.rare_terms(asked, is_common)
    hits = matches(rare)
    return hits if len(hits) == k or len(rare) == len(asked) else matches(asked)


def _matches(
    connection: PostgresConnection,
    asked: Sequence[tuple[str, ...]],
    k: int,
    rows_by_stem: dict[str, list[tuple[Any, ...]]],
    live: tuple[int, int],
) -> list[tuple[str, float]]:
    """The best facts with any of the terms, given as their stems."""
    known: dict[tuple[str, ...], _TermPostings | None] = {}
    for stems in asked:
        if stems not in known:
            known[stems] = _term(connection, stems, rows_by_stem, live)
    columns = [column for column in known.values() if column is not None]
    if not columns:
        return []
    place = {id(column): number for number, column in enumerate(columns)}
    # Two terms of one stem count twice; the sum is in the order of the terms.
    order = [place[id(column)] for stems in asked if (column := known[stems]) is not None]
    facts, totals = _best(connection, columns, order, k)
    least = float(totals.min())
    better = totals > least
    scores = dict(zip(facts[better].tolist(), totals[better].tolist(), strict=True))
    if len(facts) <= 2 * k:
        rows = connection.rows(_IDS, [facts])
    else:
        rows = connection.rows(_IDS, [facts[better]])
        rows += _first_tied(connection, facts[~better], k - len(rows), live[0])
    ranked = sorted((-scores.get(fact, least), str(id_)) for fact, id_ in rows)[:k]
    return [(id_, -score) for score, id_ in ranked]


def _first_tied(
    connection: PostgresConnection, tied: npt.NDArray[np.int64], wanted: int, live: int
) -> list[tuple[Any, ...]]:
    """The first facts by id of those with equal scores, of which there are more than wanted."""
    # Where many facts are tied, a page of all facts by id has enough of them: it is twice as long
    # as is likely to be needed. To sort all that are tied would cost more.
    size = 2 * wanted * live // len(tied)
    if _PAGED * size <= len(tied):
        page = connection.rows(_FIRST_IDS, [size])
        in_page = np.isin([fact for fact, _ in page], tied).tolist()
        if sum(in_page) >= wanted:
            return [row for row, is_tied in zip(page, in_page, strict=True) if is_tied][:wanted]
    return connection.rows(_TIED_IDS, [tied, wanted])


def _term(
    connection: PostgresConnection,
    stems: tuple[str, ...],
    rows_by_stem: dict[str, list[tuple[Any, ...]]],
    live: tuple[int, int],
) -> _TermPostings | None:
    """What is known of a term after the first rows; None if no fact contains it."""
    facts, mean = live[0], live[1] / live[0]
    rows = rows_by_stem[stems[0]]
    if len(stems) == 1:
        count = sum(row[2] for row in rows)
    else:
        postings = _phrase(connection, stems, rows_by_stem, facts)
        count = len(postings)
    if not count:
        return None
    weight = math.log((facts - count + 0.5) / (count + 0.5)) if count < facts else 0.0
    weight = weight if weight > 0.0 else _MIN_IDF
    if len(stems) > 1:
        return _TermPostings(0, weight, mean, [postings])
    unread = []
    for segment, rank, size, reach, row_mean, entries in rows:
        if entries is None:
            # Lengths count at least this share of what they did when the row was written.
            most = reach * max(1.0, mean / row_mean)
            bound = weight * (K1 + 1.0) * most / (1.0 + most) * _MARGIN
            unread.append((bound, (stems[0], segment, rank), size))
    read = unpacked([row[-1] for row in rows if row[-1] is not None])
    code = int(_codes(stems)[0])
    return _TermPostings(code, weight, mean, [read], sorted(unread, reverse=True))


def _best(
    connection: PostgresConnection, columns: Sequence[_TermPostings], order: Sequence[int], k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The facts that may be among the k best, at least all of these, with their exact scores."""
    while True:
        facts, places, scores = _scored(columns)
        at = np.concatenate([places[number] for number in order])
        in_order = np.concatenate([scores[number] for number in order])
        totals: npt.NDArray[np.float64] = np.bincount(
            at, weights=in_order, minlength=len(facts)
        ).astype(np.float64, copy=False)
        least = np.partition(totals, -k)[-k] if len(totals) >= k else -math.inf
        left = np.array([column.bound for column in columns])
        if not left.any():
            best = totals >= least
            return facts[best], totals[best]
        missing = left[order].sum()
        if missing * _MARGIN < least:
            held = np.repeat(left[order], [len(scores[number]) for number in order])
            most = totals + (missing - np.bincount(at, weights=held, minlength=len(facts)))
            near = most * _MARGIN >= least
            if near.sum() <= max(_LOOKED_UP, 4 * k):
                facts, near_places = facts[near], np.cumsum(near) - 1
                each = np.zeros((len(columns), len(facts)))
                for number, (own, own_scores) in enumerate(zip(places, scores, strict=True)):
                    each[number, near_places[own[near[own]]]] = own_scores[near[own]]
                _look_up(connection, columns, facts, each)
                totals = sum(each[order], np.zeros(len(facts)))
                best = totals >= np.partition(totals, -k)[-k]
                return facts[best], totals[best]
        _read_more(connection, columns)


def _scored(
    columns: Sequence[_TermPostings],
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]], list[npt.NDArray[np.float64]]]:
    """The facts of all postings that were read; by column the places of its facts, and scores."""
    for column in columns:
        column.read = [np.concatenate(column.read)]
    postings = [column.read[0] for column in columns]
    facts, at = np.unique(np.concatenate([p["fact"] for p in postings]), return_inverse=True)
    places = np.split(at, np.cumsum([len(p) for p in postings])[:-1])
    scores = [c.scores(p["times"], p["words"]) for c, p in zip(columns, postings, strict=True)]
    return facts, places, scores


def _look_up(
    connection: PostgresConnection,
    columns: Sequence[_TermPostings],
    facts: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float64],
) -> None:
    """Set the scores that are missing because a column was not read to its end."""
    held, owners, codes, lengths = _sequences(connection, facts)
    places = np.searchsorted(facts, held)
    for number, column in enumerate(columns):
        if column.unread:
            times = np.bincount(owners[codes == column.code], minlength=len(held))
            scores[number, places] = np.where(times, column.scores(times, lengths), 0.0)


def _read_more(connection: PostgresConnection, columns: Sequence[_TermPostings]) -> None:
    """Read the rows of the highest bounds: about as many postings as were read so far."""
    rows = sorted((row for column in columns for row in column.unread), reverse=True)
    most = max(_READ, sum(len(part) for column in columns for part in column.read))
    taken, size = 0, 0
    while taken < len(rows) and size < most:
        size += rows[taken][2]
        taken += 1
    keys = {key for _, key, _ in rows[:taken]}
    entries = _entries(connection, sorted(keys))
    for column in columns:
        if column.unread and (own := entries.get(column.unread[0][1][0])):
            column.read.append(unpacked(own))
            column.unread = [row for row in column.unread if row[1] not in keys]


def _entries(
    connection: PostgresConnection, keys: Sequence[tuple[str, int, int]]
) -> dict[str, list[bytes]]:
    """Packed postings of rows, by stem."""
    entries: dict[str, list[bytes]] = defaultdict(list)
    if keys:
        columns = [Among(column) for column in zip(*keys, strict=True)]
        for stem, packed in connection.rows(_ENTRIES, columns):
            entries[stem].append(packed)
    return entries


def _sequences(
    connection: PostgresConnection, facts: npt.NDArray[np.int64]
) -> tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint64], npt.NDArray[np.int64]
]:
    """The facts that are there; for each of their stems the fact's place and the hash; lengths."""
    rows = connection.rows(_SEQUENCES, [facts])
    held = np.array([fact for fact, _ in rows], dtype=np.int64)
    lengths = np.array([len(stems) // 8 for _, stems in rows], dtype=np.int64)
    owners = np.repeat(np.arange(len(rows)), lengths)
    return held, owners, np.frombuffer(b"".join([s for _, s in rows]), dtype="<u8"), lengths


def _phrase(
    connection: PostgresConnection,
    stems: Sequence[str],
    rows_by_stem: dict[str, list[tuple[Any, ...]]],
    live: int,
) -> Postings:
    """The postings of facts that contain the stems one after another.

    All of them are needed: the number of facts with a phrase decides its weight.
    """
    sizes = {stem: sum(row[2] for row in rows_by_stem[stem]) for stem in stems}
    rarest = min(stems, key=lambda stem: (sizes[stem], stem))
    if not sizes[rarest]:
        return np.zeros(0, dtype=POSTING)
    wanted = _codes(stems)
    phrase = wanted.tobytes()
    if 2 * sizes[rarest] > live:
        row = connection.one(_EVERY_FACT, [phrase, phrase])
    else:
        rows = rows_by_stem[rarest]
        keys = [(rarest, row[0], row[1]) for row in rows if row[-1] is None]
        read = [row[-1] for row in rows if row[-1] is not None]
        own = unpacked([*read, *_entries(connection, keys).get(rarest, ())])["fact"]
        row = connection.one(_SOME_FACTS, [phrase, phrase, own])
    matches = np.frombuffer((row and row[0]) or b"", dtype=_MATCH)
    once = matches["words"] > 0
    parts = [_postings(matches["fact"][once], 1, matches["words"][once])]
    often = matches["fact"][~once].astype(np.int64)
    for start in range(0, len(often), _READ):
        held, owners, codes, lengths = _sequences(connection, often[start : start + _READ])
        places = np.arange(len(codes) - len(wanted) + 1)
        for step, code in enumerate(wanted):
            places = places[codes[places + step] == code]
        places = places[owners[places] == owners[places + len(wanted) - 1]]
        times = np.bincount(owners[places], minlength=len(held))
        parts.append(_postings(held[times > 0], times[times > 0], lengths[times > 0]))
    return np.concatenate(parts)


def _postings(facts: Any, times: Any, words: Any) -> Postings:
    postings = np.empty(len(facts), dtype=POSTING)
    postings["fact"], postings["times"], postings["words"] = facts, times, words
    return postings
