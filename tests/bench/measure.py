"""What the benches share: processor time, memory, the machine, one thread for every library."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")

# Items that one of two calls is measured over before it is the other's turn.
TURN = 20
# Rounds of the loop that a run is measured against.
LOOP = 200_000
# Read by BLAS and OpenMP when they are loaded, so they must stand before numpy is imported.
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def in_one_thread(module: str, arguments: Sequence[str]) -> int:
    """The status of a module of ours, run in a process in which every library uses one thread."""
    command = [sys.executable, "-m", module, *arguments]
    # The module is one of ours, and the arguments are passed on as they are, through no shell.
    return subprocess.run(command, env={**os.environ, **ONE_THREAD}, check=False).returncode


def has_one_thread() -> bool:
    """Whether this process was started so."""
    return all(os.environ.get(name) == value for name, value in ONE_THREAD.items())


def cpu_ms(call: Callable[[], object]) -> float:
    """Processor time of one call, of all threads of the process, in milliseconds."""
    before = time.process_time()
    call()
    return (time.process_time() - before) * 1000


def median_ms(
    items: Sequence[Item], call: Callable[[Item], object], *, seconds: float = 20.0
) -> tuple[float, int]:
    """Median processor time of a call in milliseconds, and over how many items.

    The first call does not count. Dear calls stop after three at the earliest, when the time
    is used up.
    """
    call(items[0])
    taken: list[float] = []
    until = time.perf_counter() + seconds
    for item in items:
        taken.append(cpu_ms(lambda item=item: call(item)))  # type: ignore[misc]
        if len(taken) >= 3 and time.perf_counter() > until:
            break
    return statistics.median(taken), len(taken)


def by_turns_ms(
    items: Sequence[Item],
    ours: Callable[[Item], object],
    other: Callable[[Item], object],
    *,
    seconds: float = 20.0,
) -> tuple[list[float], list[float]]:
    """Processor times in milliseconds of two calls over the same items, so many items in turn.

    So a slow moment of the machine meets both. The first call of each does not count; a dear one
    stops after three at the earliest, when the time is used up, and the first with it.
    """
    ours(items[0])
    other(items[0])
    taken: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    for start in range(0, len(items), TURN):
        part = items[start : start + TURN]
        taken[0].extend(cpu_ms(lambda item=item: ours(item)) for item in part)  # type: ignore[misc]
        for item in part:
            taken[1].append(cpu_ms(lambda item=item: other(item)))  # type: ignore[misc]
            if len(taken[1]) >= 3 and time.perf_counter() > until:
                return taken
    return taken


def loop_ms(times: int = 5) -> float:
    """Processor time of a fixed loop of plain Python, in milliseconds, the median of a few runs.

    It tells how fast the machine was in the run that it stands in, so that readings of different
    hours and machines can be compared by their ratio to it.
    """
    return statistics.median(cpu_ms(_loop) for _ in range(times))


def _loop() -> int:
    total = 0
    for number in range(LOOP):
        total += number * number % 7
    return total


def resident_mb() -> float:
    """Memory of this process that is in RAM, in MB; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def steady_mb() -> float:
    """The same after a collection and without what is free, where the C library gives it back."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return resident_mb()


def peak_mb() -> float:
    """The most memory that this process had in RAM, in MB; 0 where the system does not tell."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmHWM:")), "VmHWM: 0 kB")
    return int(line.split()[1]) / 1000


def machine() -> dict[str, str]:
    """Kind of machine and Python, without names of places or people."""
    return {
        "cores": str(os.cpu_count()),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "threads": "1 a library" if has_one_thread() else "as the libraries choose",
    }


def versions(*packages: str) -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
