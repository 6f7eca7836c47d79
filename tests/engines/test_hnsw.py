"""The graph engine over hnswlib: equal graphs, refused rows, files that do not fit."""

from __future__ import annotations

import heapq
import struct
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crp_integrations.engines import hnsw
from crp_integrations.errors import EngineError, MissingExtra
from crp_integrations.fabric.settings import VectorGraphSettings
from crp_integrations.vectors import cosine, unit_rows

SETTINGS = VectorGraphSettings()


def rows(count: int, width: int = 24, seed: int = 0) -> np.ndarray:
    """Rows around a few centres, as texts of a few topics are."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((max(1, count // 40), width))
    picked = centres[random.integers(0, len(centres), count)]
    return unit_rows(picked + 0.6 * random.standard_normal((count, width)))


@pytest.fixture
def engine() -> hnsw.HnswEngine:
    pytest.importorskip("hnswlib")
    return hnsw.HnswEngine()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hnswlib", None)
    with pytest.raises(MissingExtra, match=r"crp-integrations\[hnsw\]"):
        hnsw.HnswEngine()
    assert hnsw.available() is None


@pytest.mark.requirement("CARD-4")
def test_a_graph_finds_most_of_the_nearest_rows(engine: hnsw.HnswEngine) -> None:
    block = rows(2_000)
    graph = engine.build(block, SETTINGS)
    found = wanted = 0
    for query in rows(50, seed=1):
        best = set(np.argsort(-cosine(block, query), kind="stable")[:20].tolist())
        found += len(best & set(graph.search(query, 20).tolist()))
        wanted += 20
    assert found >= 0.98 * wanted


@pytest.mark.requirement("CARD-4")
def test_equal_rows_give_an_equal_graph(engine: hnsw.HnswEngine, tmp_path: Path) -> None:
    block = rows(600)
    files = []
    for name in ("one", "two"):
        path = tmp_path / name
        engine.build(block, SETTINGS).save(str(path))
        files.append(path.read_bytes())
    assert files[0] == files[1]
    other = tmp_path / "three"
    engine.build(block, VectorGraphSettings(seed=7)).save(str(other))
    assert other.read_bytes() != files[0]


@pytest.mark.requirement("009-3.2-1", "009-3.2-2", "009-3.2-3", "009-3.2-4", "009-3.2-5")
def test_the_library_is_told_what_the_settings_say(
    engine: hnsw.HnswEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import hnswlib

    made: list[Any] = []

    class Told(hnswlib.Index):  # type: ignore[misc]
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            made.append((self, given))

    monkeypatch.setattr(hnswlib, "Index", Told)
    for width in (24, 1_536):
        graph = engine.build(rows(30, width), SETTINGS)
        index, given = made[-1]
        assert given == {"space": "cosine", "dim": width}
        assert (index.M, index.ef_construction, index.ef) == (16, 200, 100)
        path = tmp_path / str(width)
        graph.save(str(path))
        engine.load(str(path), rows(30, width), SETTINGS)
        index, given = made[-1]
        assert (index.space, index.dim, index.ef) == ("cosine", width, 100)
    own = VectorGraphSettings(m=8, ef_construction=50, ef_search=40, metric="ip")
    engine.build(rows(30), own)
    index, given = made[-1]
    assert (given["space"], index.M, index.ef_construction, index.ef) == ("ip", 8, 50, 40)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused(engine: hnsw.HnswEngine, bad: float) -> None:
    block = rows(10)
    block[3, 2] = bad
    with pytest.raises(EngineError, match="not finite"):
        engine.build(block, SETTINGS)


def test_a_graph_comes_back_from_its_file(engine: hnsw.HnswEngine, tmp_path: Path) -> None:
    block = rows(300)
    built = engine.build(block, SETTINGS)
    path = str(tmp_path / "graph")
    built.save(path)
    loaded = engine.load(path, block, SETTINGS)
    for query in rows(10, seed=5):
        assert loaded.search(query, 30).tolist() == built.search(query, 30).tolist()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data[: len(data) // 2],
        lambda data: bytes(len(data)),
        lambda data: data[:8] + struct.pack("<Q", 2**40) + data[16:],
        lambda data: data[:16] + struct.pack("<Q", 301) + data[24:],
        lambda data: data[:24] + struct.pack("<Q", 12) + data[32:],
    ],
)
def test_a_file_whose_head_does_not_fit_is_refused(
    engine: hnsw.HnswEngine, tmp_path: Path, damage: Any
) -> None:
    block = rows(300)
    path = tmp_path / "graph"
    engine.build(block, SETTINGS).save(str(path))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(EngineError):
        engine.load(str(path), block, SETTINGS)


def test_a_file_of_other_rows_dimensions_or_settings_is_refused(
    engine: hnsw.HnswEngine, tmp_path: Path
) -> None:
    path = str(tmp_path / "graph")
    engine.build(rows(300), SETTINGS).save(path)
    for block in (rows(299), rows(300, 16), rows(300, 25)):
        with pytest.raises(EngineError, match="wanted"):
            engine.load(path, block, SETTINGS)
    with pytest.raises(EngineError, match="wanted"):
        engine.load(path, rows(300), VectorGraphSettings(m=8))
    with pytest.raises(EngineError, match="could not read"):
        engine.load(path + ".not-there", rows(300), SETTINGS)


def test_a_graph_that_cannot_be_written_says_so(engine: hnsw.HnswEngine, tmp_path: Path) -> None:
    graph = engine.build(rows(10), SETTINGS)
    with pytest.raises(EngineError, match="could not write"):
        graph.save(str(tmp_path / "no" / "folder"))


class Walk:
    """The search of Malkov and Yashunin over a saved graph, counting the rows it compares."""

    def __init__(self, path: Path, block: np.ndarray) -> None:
        data = path.read_bytes()
        head = struct.unpack_from("<QQQQQQiIQQQdQ", data)
        _, _, self.count, element, _, _, self.top, self.entry, upper, _, _, _, _ = head
        start = struct.calcsize("<QQQQQQiIQQQdQ")
        self.block, self.links = block, []
        at = start + self.count * element
        for row in range(self.count):
            (size,) = struct.unpack_from("<I", data, at)
            layers = [self._list(data, start + row * element)]
            layers += [
                self._list(data, at + 4 + level * 4 * (upper + 1))
                for level in range(size // (4 * (upper + 1)))
            ]
            self.links.append(layers)
            at += 4 + size
        assert at == len(data)

    @staticmethod
    def _list(data: bytes, at: int) -> list[int]:
        (length,) = struct.unpack_from("<H", data, at)
        return list(struct.unpack_from(f"<{length}I", data, at + 4))

    def search(self, query: np.ndarray, ef: int) -> tuple[set[int], int]:
        """The rows that come out, and how many were compared with the query."""
        compared = 0

        def far(row: int) -> float:
            nonlocal compared
            compared += 1
            return 1.0 - float(self.block[row] @ query)

        here, best = self.entry, far(self.entry)
        for level in range(self.top, 0, -1):
            moved = True
            while moved:
                moved = False
                for row in self.links[here][level]:
                    distance = far(row)
                    if distance < best:
                        here, best, moved = row, distance, True
        waiting, found, seen = [(best, here)], [(-best, here)], {here}
        while waiting:
            distance, row = heapq.heappop(waiting)
            if distance > -found[0][0] and len(found) >= ef:
                break
            for other in self.links[row][0]:
                if other in seen:
                    continue
                seen.add(other)
                distance = far(other)
                if len(found) < ef or distance < -found[0][0]:
                    heapq.heappush(waiting, (distance, other))
                    heapq.heappush(found, (-distance, other))
                    if len(found) > ef:
                        heapq.heappop(found)
        return {row for _, row in found}, compared


@pytest.mark.requirement("009-3.1-1", "CARD-4")
def test_the_rows_compared_grow_slower_than_the_rows_there_are(
    engine: hnsw.HnswEngine, tmp_path: Path
) -> None:
    settings = VectorGraphSettings(ef_search=20)
    sizes, compared = (500, 2_000, 8_000), []
    for size in sizes:
        block = rows(size, 16)
        graph = engine.build(block, settings)
        path = tmp_path / str(size)
        graph.save(str(path))
        walk = Walk(path, block)
        counts = []
        for query in rows(20, 16, seed=4):
            found, count = walk.search(query, settings.ef_search)
            # The walk is the library's own: it comes out with the same rows.
            assert len(found & set(graph.search(query, settings.ef_search).tolist())) >= 19
            counts.append(count)
        compared.append(sum(counts) / len(counts))
    # Sixteen times the rows: less than four times the comparisons, and each step less than half.
    assert compared[2] < 4 * compared[0]
    assert all(later < 2 * earlier for earlier, later in pairwise(compared))
