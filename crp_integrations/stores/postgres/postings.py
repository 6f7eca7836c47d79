"""Postings by falling impact, for the word search; see `word_search`.

Only retrievable facts have postings. Each addition of facts makes a segment of each of its stems;
eight segments of a level are merged into one of the next. A segment's rows contain its postings by
falling impact, and each row the bound of its impacts.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from crp_integrations.language.words import stems_of
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.stores.rules import Among

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

# BM25 as in SQLite's FTS5.
K1: Final = 1.2
B: Final = 0.75
# A posting in a row: the fact's number, how often it has the stem, and how many stems it has.
POSTING: Final = np.dtype([("fact", "<i8"), ("times", "<i4"), ("words", "<i4")])
Postings = npt.NDArray[np.void]
# Postings of a segment's first rows: the first is small enough to be stored within its page, each
# further one is longer, so that few rows are listed, and the last ones can be rewritten quickly.
_ROWS: Final = (100, 400, 1_600)
_LAST_ROWS: Final = 4_096
# Segments of a level that are merged, and stems that are read at a time.
_MERGED: Final = 8
_STEMS: Final = 500


@lru_cache(maxsize=65_536)
def hashed(stem: str) -> bytes:
    """Hash of a stem, as in `stem_sequences.stems`."""
    return hashlib.blake2b(stem.encode(), digest_size=8).digest()


def unpacked(rows: Sequence[bytes]) -> Postings:
    """The postings of packed rows."""
    return np.frombuffer(b"".join(rows), dtype=POSTING)


def length_factor(words: npt.NDArray[np.integer], mean: float) -> npt.NDArray[np.float64]:
    """BM25's factor for a text's length."""
    return K1 * (1.0 - B + B * words.astype(np.float64) / mean)


def add(
    connection: PostgresConnection, texts: Sequence[tuple[int, str, bool]]
) -> tuple[list[int], list[str]]:
    """Store the postings of retrievable facts.

    Args:
        texts: number and text of each fact, and whether it is retrievable.

    Returns:
        Number of stems of every text, and the distinct stems of retrievable ones for `merge`.
    """
    lengths: list[int] = []
    sequences: list[tuple[int, bytes]] = []
    codes: dict[str, int] = {}
    parts: list[tuple[int, int, int]] = []
    stems_by_part: list[int] = []
    for fact, text, retrievable in texts:
        stems = stems_of(text)
        lengths.append(len(stems))
        if not (retrievable and stems):
            continue
        sequences.append((fact, b"".join(map(hashed, stems))))
        for stem, times in Counter(stems).items():
            stems_by_part.append(codes.setdefault(stem, len(codes)))
            parts.append((fact, times, len(stems)))
    if sequences:
        connection.copy("stem_sequences (fact, stems)", ("int8", "bytea"), sequences)
        _store(connection, list(codes), stems_by_part, np.array(parts, dtype=POSTING), 0)
    return lengths, sorted(codes)


def _store(
    connection: PostgresConnection,
    stems: Sequence[str],
    owners: Sequence[int] | npt.NDArray[np.int64],
    postings: Postings,
    level: int,
) -> None:
    """Write postings as one segment of each stem; `owners` are places in `stems`."""
    row = connection.one("SELECT nextval('segments')")
    assert row is not None
    # In the order of the index, so that each of its pages is written once.
    names = sorted(range(len(stems)), key=stems.__getitem__)
    order = np.empty(len(stems), dtype=np.int64)
    order[names] = np.arange(len(stems))
    places = order[owners]
    mean = float(postings["words"].mean())
    impact = postings["times"] / length_factor(postings["words"], mean)
    sorting = np.lexsort((postings["fact"], -impact, places))
    ends = np.searchsorted(places[sorting], np.arange(len(stems)), side="right").tolist()
    reach, packed = impact[sorting], postings[sorting].tobytes()
    size = POSTING.itemsize

    def rows() -> Iterator[tuple[Any, ...]]:
        start = 0
        for name, end in zip(names, ends, strict=True):
            rank = 0
            while start < end:
                most = _ROWS[rank] if rank < len(_ROWS) else _LAST_ROWS
                stop = min(end, start + most)
                entries = packed[size * start : size * stop]
                key = (stems[name], row[0], rank)
                yield *key, level, stop - start, float(reach[start]), mean, entries
                start, rank = stop, rank + 1

    connection.copy(
        "postings (stem, segment, rank, level, size, reach, mean, entries)",
        ("text", "int8", "int4", "int4", "int4", "float8", "float8", "bytea"),
        rows(),
    )


def merge(connection: PostgresConnection, stems: Sequence[str]) -> None:
    """Merge the segments of stems that have many; needs the writers' lock."""
    due = connection.rows(
        "SELECT stem, level FROM postings WHERE stem = ANY(?) AND rank = 0 "
        f"GROUP BY stem, level HAVING count(*) >= {_MERGED} ORDER BY level, stem",
        [Among(stems)],
    )
    for level in sorted({level for _, level in due}):
        own = [stem for stem, at in due if at == level]
        for start in range(0, len(own), _STEMS):
            part = own[start : start + _STEMS]
            place = {stem: number for number, stem in enumerate(part)}
            rows = connection.rows(
                "DELETE FROM postings WHERE stem = ANY(?) AND level = ? RETURNING stem, entries",
                [Among(part), level],
            )
            sizes = [len(entries) // POSTING.itemsize for _, entries in rows]
            owners = np.repeat([place[stem] for stem, _ in rows], sizes)
            _store(connection, part, owners, unpacked([e for _, e in rows]), level + 1)


def remove(connection: PostgresConnection, texts: Sequence[tuple[int, str]]) -> None:
    """Remove the postings of some facts; `texts` are their old texts."""
    facts = sorted(fact for fact, _ in texts)
    connection.execute("DELETE FROM stem_sequences WHERE fact = ANY(?)", [Among(facts)])
    stems = sorted({stem for _, text in texts for stem in stems_of(text)})
    # One fact is looked for by the server, so that only rows that contain it are sent.
    held, only = "", []
    if len(facts) == 1:
        held, only = " AND position(? IN entries) > 0", [facts[0].to_bytes(8, "little")]
    for start in range(0, len(stems), _STEMS):
        rows = connection.rows(
            f"SELECT stem, segment, rank, entries FROM postings WHERE stem = ANY(?){held}",
            [Among(stems[start : start + _STEMS]), *only],
        )
        for *key, entries in rows:
            postings = unpacked([entries])
            left = postings[~np.isin(postings["fact"], facts)]
            if len(left) < len(postings):
                # The bound stays: it is still one.
                connection.execute(
                    "UPDATE postings SET size = ?, entries = ? "
                    "WHERE stem = ? AND segment = ? AND rank = ?",
                    [len(left), left.tobytes(), *key],
                )
        connection.execute(
            "DELETE FROM postings WHERE stem = ANY(?) AND size = 0",
            [Among(stems[start : start + _STEMS])],
        )


def counted_stems(connection: PostgresConnection) -> dict[int, int]:
    """Number of stems of each fact in the postings."""
    counts: Counter[int] = Counter()
    after: tuple[Any, ...] = ("", 0, 0)
    statement = (
        "SELECT stem, segment, rank, entries FROM postings WHERE (stem, segment, rank) > (?, ?, ?) "
        f"ORDER BY stem, segment, rank LIMIT {_STEMS}"
    )
    while page := connection.rows(statement, after):
        postings = unpacked([row[-1] for row in page])
        facts, places = np.unique(postings["fact"], return_inverse=True)
        times = np.bincount(places, weights=postings["times"])
        counts.update(dict(zip(facts.tolist(), times.astype(np.int64).tolist(), strict=True)))
        after = page[-1][:3]
    return counts
