"""Opens a store in a fresh process and searches once: `… opening FOLDER VECTOR minilm|hash`.

Prints one JSON document: seconds by the clock and of processor time from `Relay.open` to the
first answer, seconds of importing before that, and the memory afterwards.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from crp_integrations.errors import StoreError

MODULE = "tests.bench.fabric_opening"
# One process says little: memory that a machine has to find first costs more than the work.
PROCESSES = 5


def measure(folder: Path, vector: Any, kind: str) -> dict[str, Any]:
    """Open a store in fresh processes, one after the other, as the environment of this one is.

    Args:
        vector: unit row that is searched for, shape (dimensions,).
        kind: the embedder that made it.

    Returns:
        Each figure's median over the processes, and `each_s`, seconds by the clock of every one.
    """
    import numpy as np

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "vector.npy"
        np.save(path, vector)
        runs = [_once([str(folder), str(path), kind]) for _ in range(PROCESSES)]
    report: dict[str, Any] = {name: median(run[name] for run in runs) for name in runs[0]}
    return {**report, "each_s": [run["open_s"] for run in runs]}


def _once(arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", MODULE, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        said = (ended.stderr.strip().splitlines() or ["nothing"])[-1]
        raise StoreError(f"a fresh process could not open the store: {said}")
    report: dict[str, float] = json.loads(ended.stdout)
    return report


def main() -> None:
    """What the fresh process does."""
    start = time.perf_counter()
    import numpy as np

    from crp_integrations import Relay
    from tests.bench.fabric_corpus import HashEmbedder
    from tests.bench.measure import peak_mb, resident_mb

    folder, path, kind = sys.argv[1:4]
    vector = np.load(path)
    imported = time.perf_counter()
    memory = resident_mb()
    before = time.process_time()
    embedder = HashEmbedder() if kind == "hash" else None
    with Relay.open(folder, embedder=embedder) as relay:
        found = relay.fabric.nearest(vector, 50)
        taken, cpu = time.perf_counter() - imported, time.process_time() - before
        again = time.process_time()
        relay.fabric.nearest(vector, 50)
        report = {
            "import_s": imported - start,
            "open_s": taken,
            "open_cpu_s": cpu,
            "second_search_ms": (time.process_time() - again) * 1000,
            "found": len(found),
            "memory_before_mb": memory,
            "memory_mb": resident_mb(),
            "peak_mb": peak_mb(),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
