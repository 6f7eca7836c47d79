"""Word search over postings of stems, scored as SQLite's FTS5 scores it."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from crp_integrations.language.words import stems_of
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.statements import RETRIEVABLE_SQL, Among

# BM25 as SQLite's FTS5 has it; a term that half of all facts hold or more weighs `LEAST_IDF`.
K1 = 1.2
B = 0.75
LEAST_IDF = 1e-6
# Bytes of one place in `postings.places`.
_PLACE = 4
# BM25 over the retrievable facts; a term's hits come from its stem, or are given for a phrase. The
# sum is in the order of the terms, so that equal facts have equal scores.
_HITS = f"""WITH hits AS (
    SELECT asked.term, fact, length(places) / {_PLACE} AS times
        FROM unnest(?::int[], ?::text[]) AS asked (term, stem) JOIN postings USING (stem)
    UNION ALL SELECT * FROM unnest(?::int[], ?::bigint[], ?::int[])
), live AS (
    SELECT term, times, fact_id, words FROM hits JOIN facts USING (fact) WHERE {RETRIEVABLE_SQL}
), everything AS (
    SELECT max(value) FILTER (WHERE name = 'live_facts')::float8 AS facts,
        max(value) FILTER (WHERE name = 'live_words')::float8 AS words FROM own
), weights AS (
    SELECT term, greatest(ln((facts - count(*) + 0.5) / (count(*) + 0.5)), 0.0) AS idf
        FROM live, everything GROUP BY term, facts
)"""
_SCORE = f"""CASE WHEN idf > 0 THEN idf ELSE {LEAST_IDF} END * times * {K1 + 1.0}
        / (times + {K1} * ({1.0 - B} + {B} * live.words * facts / everything.words))"""
SEARCH = f"""{_HITS}
SELECT fact_id, sum({_SCORE} ORDER BY term) AS score
FROM live JOIN weights USING (term), everything
GROUP BY fact_id ORDER BY score DESC, fact_id LIMIT ?"""
# The best of each term for itself.
SEARCH_EACH = f"""{_HITS}, scored AS (
    SELECT term, fact_id, {_SCORE} AS score FROM live JOIN weights USING (term), everything
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY term ORDER BY score DESC, fact_id) AS place
        FROM scored
)
SELECT term, fact_id, score FROM placed WHERE place <= ? ORDER BY term, place"""


def search(connection: PostgresConnection, terms: Sequence[str], k: int) -> list[tuple[str, float]]:
    """Best retrievable facts that hold any of the terms: id and BM25 score, ties by id."""
    asked = asking(connection, terms, k)
    if asked is None:
        return []
    return [(str(id), float(score)) for id, score in connection.rows(SEARCH, asked)]


def search_each(
    connection: PostgresConnection, terms: Sequence[str], k: int
) -> list[list[tuple[str, float]]]:
    """What `search` finds for each of some different terms alone, in one statement."""
    found: list[list[tuple[str, float]]] = [[] for _ in terms]
    asked = asking(connection, terms, k)
    if asked is not None:
        for term, id_, score in connection.rows(SEARCH_EACH, asked):
            found[term].append((str(id_), float(score)))
    return found


def asking(connection: PostgresConnection, terms: Sequence[str], k: int) -> list[Any] | None:
    """The parameters of `SEARCH`; None when nothing can be found."""
    single: list[tuple[int, str]] = []
    phrases: list[tuple[int, int, int]] = []
    for number, term in enumerate(dict.fromkeys(terms)):
        stems = stems_of(term)
        if len(stems) == 1:
            single.append((number, stems[0]))
        elif stems:
            phrases += ((number, *hit) for hit in _phrase(connection, stems))
    if k <= 0 or not (single or phrases):
        return None
    columns = [Among(column) for column in zip(*single, strict=True)] or [Among(), Among()]
    given = [Among(column) for column in zip(*phrases, strict=True)] or [Among()] * 3
    return [*columns, *given, k]


def _phrase(connection: PostgresConnection, stems: Sequence[str]) -> list[tuple[int, int]]:
    """Facts that hold the stems one behind the other, and how often."""
    distinct = sorted({*stems})
    found: dict[int, dict[str, set[int]]] = defaultdict(dict)
    # Only facts that hold all of them are read.
    for fact, stem, places in connection.rows(
        "SELECT fact, stem, places FROM postings WHERE stem = ANY(?) AND fact IN "
        "(SELECT fact FROM postings WHERE stem = ANY(?) GROUP BY fact HAVING count(*) = ?)",
        [Among(distinct), Among(distinct), len(distinct)],
    ):
        found[fact][stem] = {*np.frombuffer(places, dtype="<u4").tolist()}
    hits = []
    for fact, places_of in found.items():
        count = sum(
            all(start + step in places_of[stem] for step, stem in enumerate(stems))
            for start in places_of[stems[0]]
        )
        if count:
            hits.append((fact, count))
    return hits


def add(connection: PostgresConnection, texts: Sequence[tuple[int, str]]) -> list[int]:
    """Note where each stem stands in the texts of some facts; how many stems each text has."""
    lengths: list[int] = []
    rows: list[tuple[str, int, bytes]] = []
    for fact, text in texts:
        places: dict[str, list[int]] = defaultdict(list)
        stems = stems_of(text)
        lengths.append(len(stems))
        for place, stem in enumerate(stems):
            places[stem].append(place)
        rows += ((stem, fact, np.array(at, dtype="<u4").tobytes()) for stem, at in places.items())
    # In the order of the index, so that a page of it is written once.
    connection.copy("postings (stem, fact, places)", ("text", "int8", "bytea"), sorted(rows))
    return lengths


def remove(connection: PostgresConnection, texts: Sequence[tuple[int, str]]) -> None:
    """Forget where the stems of some facts stand, which have had these texts."""
    pairs = [(stem, fact) for fact, text in texts for stem in sorted({*stems_of(text)})]
    if pairs:
        stems, facts = zip(*pairs, strict=True)
        connection.execute(
            "DELETE FROM postings USING unnest(?::text[], ?::bigint[]) AS gone (stem, fact) "
            "WHERE postings.stem = gone.stem AND postings.fact = gone.fact",
            [Among(stems), Among(facts)],
        )
