"""A sample of mutants, and how many of them the tests of their room kill.

`python -m tests.house.mutants --count 200 --seed 1 [--rooms dpe,envelope] [--jobs 2]`. The sample
is drawn by room, each room by its number of lines, so that it stays fair when modules are moved.
Nothing is changed here: the mutants live in copies in a temporary folder.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "crp_integrations"
# Rooms whose tests lie elsewhere.
TESTS = {
    "ports": "relay",
    "langchain": "adapters",
    "litellm": "adapters",
    "llama_index": "adapters",
}
LEFT_OUT = {"bench", "weights", "testing"}
FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    Attributes:
        start, end: offsets of the bytes that are replaced.
    """

    room: str
    path: str
    line: int
    kind: str
    start: int
    end: int
    text: str


def mutants(path: Path, room: str) -> Iterator[Mutant]:
    """Every mutant of a file, in its order."""
    data = path.read_bytes()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in inside(ast.parse(data)):
        for kind, other in changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            name = path.relative_to(ROOT).as_posix()
            yield Mutant(room, name, node.lineno, kind, start, end, f"({ast.unparse(other)})")


def inside(tree: ast.Module) -> Iterator[ast.expr]:
    """The expressions that run in functions, without annotations and defaults."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                # A function within is visited by itself.
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _expressions(statement)


def _expressions(node: ast.AST) -> Iterator[ast.expr]:
    # The parts of an f-string have no places of their own in every version.
    if isinstance(node, ast.JoinedStr | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.Return) and node.value is not None:
        node.value.returned = True  # type: ignore[attr-defined]
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _expressions(child)


def changes(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What an expression could be instead, with the kind of the change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPS:
        ops = [FLIPS[type(node.ops[0])](), *node.ops[1:]]
        yield "comparison", ast.Compare(node.left, ops, node.comparators)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "number+1", ast.Constant(node.value + 1)
        yield "number-1", ast.Constant(node.value - 1)
    elif isinstance(node, ast.BoolOp):
        yield (
            "and/or",
            ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values),
        )
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", node.operand
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield "plus/minus", ast.BinOp(node.left, other, node.right)
    if getattr(node, "returned", False) and not isinstance(node, ast.Constant):
        yield "return None", ast.Constant(None)


def rooms() -> dict[str, list[Path]]:
    """The modules of each room that has tests of its own."""
    found = {}
    for folder in sorted((ROOT / PACKAGE).iterdir()):
        if folder.is_dir() and folder.name not in LEFT_OUT and tests_of(folder.name).is_dir():
            found[folder.name] = sorted(folder.rglob("*.py"))
    return found


def tests_of(room: str) -> Path:
    """The folder of a room's tests."""
    return ROOT / "tests" / TESTS.get(room, room)


def sample(count: int, seed: int, wanted: Sequence[str] = ()) -> list[Mutant]:
    """Mutants over the rooms, each room by its number of lines."""
    rng = random.Random(seed)
    known = {name: paths for name, paths in rooms().items() if not wanted or name in wanted}
    lines = [sum(path.read_bytes().count(b"\n") for path in paths) for paths in known.values()]
    drawn = Counter(rng.choices(list(known), lines, k=count))
    found: list[Mutant] = []
    for room, number in sorted(drawn.items()):
        possible = [one for path in known[room] for one in mutants(path, room)]
        # As many of each kind as there are, so that the commonest kind does not take all.
        kinds = sorted({one.kind for one in possible})
        for kind in rng.choices(kinds, k=number):
            found.append(rng.choice([one for one in possible if one.kind == kind]))
    return found


def killed(mutant: Mutant, copy: Path, seconds: float) -> bool:
    """Whether the tests of the room notice a mutant in a copy of the tree; a hang counts too."""
    path = copy / mutant.path
    before = path.read_bytes()
    path.write_bytes(before[: mutant.start] + mutant.text.encode() + before[mutant.end :])
    tests = tests_of(mutant.room).relative_to(ROOT).as_posix()
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    running = subprocess.Popen(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return running.wait(timeout=seconds) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        path.write_bytes(before)


def run(found: Sequence[Mutant], jobs: int, seconds: float) -> list[tuple[Mutant, bool]]:
    """Each mutant, and whether it was killed."""
    own = threading.local()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:

        def one(mutant: Mutant) -> tuple[Mutant, bool]:
            if not hasattr(own, "copy"):
                own.copy = Path(tempfile.mkdtemp(dir=folder)) / "tree"
                leave = shutil.ignore_patterns(".git", "__pycache__", "*_cache", ".hypothesis")
                shutil.copytree(ROOT, own.copy, ignore=leave)
            dead = killed(mutant, own.copy, seconds)
            word = "killed" if dead else "ALIVE "
            print(f"{word} {mutant.path}:{mutant.line} {mutant.kind} {mutant.text:.60}", flush=True)
            return mutant, dead

        # A room whose tests fail as it is would kill every mutant.
        whole = {one.room: replace(one, kind="none", end=one.start, text="") for one in found}
        failing = sorted(mutant.room for mutant, dead in pool.map(one, whole.values()) if dead)
        if failing:
            raise SystemExit(f"the tests of {', '.join(failing)} fail without any mutant")
        return list(pool.map(one, found))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", default="", help="names with commas between; all without")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="until the tests of a room hang"
    )
    parser.add_argument("--list", action="store_true", help="print the sample, and run nothing")
    parser.add_argument("--json", type=Path, help="file for the shares")
    told = parser.parse_args(arguments)
    found = sample(told.count, told.seed, [name for name in told.rooms.split(",") if name])
    if told.list:
        for one in found:
            print(f"{one.path}:{one.line} {one.kind} {one.text:.80}")
        return 0
    done = run(found, told.jobs, told.seconds)
    every = Counter(mutant.room for mutant, _ in done)
    dead = Counter(mutant.room for mutant, gone in done if gone)
    for room, number in sorted(every.items()):
        print(f"{room:16}{dead[room]:5} of {number:4} killed")
    print(
        f"{'all':16}{dead.total():5} of {every.total():4} killed, {dead.total() / every.total():.1%}"
    )
    if told.json:
        shares = {room: [dead[room], number] for room, number in sorted(every.items())}
        told.json.write_text(json.dumps(shares, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
