"""The rows under a graph as a file of their own, which is mapped instead of read.

A row in the file is the one that the store had when the graph was built, so whoever maps it reads
what has changed since out of the store. A file that does not fit is not used, and all rows are read
there. It can be lost at any time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
from pydantic import ValidationError

from crp_integrations.fabric.ports import Cache, Cached, Found, Transaction
from crp_integrations.fabric.search.index import Block, checksum
from crp_integrations.records import Record
from crp_integrations.seals import sha256_hex
from crp_integrations.vectors import FloatRows

# Name of the cached file.
FILE = "rows"
_STORED = np.dtype("<f4")
# Rows of a mapped file that are compared with their checksums.
_PROBES = 8
# A mapped file cannot be removed on this system, and what was erased has to go from the disk.
_CANNOT_REMOVE = sys.platform == "win32"


class RowsFile(Record):
    """What is said of a file of rows.

    Attributes:
        rows_of: what `rows_of` says of the graph that they are under.
    """

    SCHEMA = "rows-file/1"

    rows_of: str


def rows_of(ids: Sequence[str], checksums: Sequence[int]) -> str:
    """SHA-256 of which rows a graph is over: their ids and checksums, in order."""
    return sha256_hex("\n".join([*ids, "", *map(str, checksums)]))


def save(
    cache: Cache,
    ids: Sequence[str],
    checksums: Sequence[int],
    block: FloatRows,
    still_valid: Callable[[Transaction], bool],
) -> bool:
    """Keep the rows of a graph, shape (n, dimensions), little-endian float32.

    Returns:
        Whether the file was published.
    """
    about = RowsFile(rows_of=rows_of(ids, checksums)).model_dump(mode="json")

    def write(path: str) -> None:
        block.astype(_STORED, copy=False).tofile(path)

    return cache.save(FILE, about, write, still_valid)


def find(cache: Cache, ids: Sequence[str], checksums: Sequence[int]) -> Block | None:
    """What maps the file of exactly these rows, which is being checked meanwhile.

    Returns:
        None when there is no such file. What is returned gives None when the file is not whole, or
        does not hold what the checksums say.
    """
    found = cache.find(FILE)
    if found is None or not _fits(found, ids, checksums):
        return None
    file = found

    def rows() -> FloatRows | None:
        whole = file.whole()
        block = None if whole is None else _mapped(whole, len(ids))
        return block if block is not None and _probed(block, checksums) else None

    return rows


def _fits(found: Found, ids: Sequence[str], checksums: Sequence[int]) -> bool:
    try:
        about = RowsFile.model_validate(found.about)
    except ValidationError:
        return False
    return about.rows_of == rows_of(ids, checksums)


def _mapped(cached: Cached, rows: int) -> FloatRows | None:
    """The rows of a whole file, not to be written into.

    A file is replaced or removed and never written again, so what is mapped stays what was checked.
    """
    try:
        if _CANNOT_REMOVE:
            flat = np.fromfile(cached.path, dtype=_STORED)
        else:
            flat = np.asarray(np.memmap(cached.path, dtype=_STORED, mode="r"))
    except (OSError, ValueError):
        # Another process has put a newer one in its place, or dropped it.
        return None
    if not flat.size or flat.size % rows:
        return None
    block: FloatRows = flat.reshape(rows, -1).astype(np.float32, copy=False)
    block.flags.writeable = False
    return block


def _probed(block: FloatRows, checksums: Sequence[int]) -> bool:
    """Whether a few rows are what their checksums say.

    Another process may have put another file into its place after it was checked.
    """
    last = len(checksums) - 1
    places = np.linspace(0, last, min(_PROBES, len(checksums))).astype(np.intp).tolist()
    return all(checksum(block[place]) == checksums[place] for place in places)
