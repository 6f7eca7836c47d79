"""Processor time beside that of a commit: `python -m tests.bench.against COMMIT [--rounds N]`.

Both trees do the same work by turns, each in a process of its own; the commit's tree is a git
worktree in a temporary folder. The work calls public names only, so that it runs on both. Its
embedder hashes words, since a network's time would hide ours; `examine long` alone takes the default
one: 300 words in other words than the facts, over 2,000 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# One thread, so that waiting threads do not count as work.
THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
IMPORT = """
import json, sys, time
began = time.process_time()
from crp_integrations import pack, examine
pack, examine
ms = (time.process_time() - began) * 1000
ours = sum(name.split(".")[0] == "crp_integrations" for name in sys.modules)
print(json.dumps({"import ms": ms, "import modules": ours}))
"""
WORK = """
import hashlib, json, random, re, statistics, sys, time
import numpy as np
from datetime import UTC, datetime
from crp_integrations import Relay, Reply, examine, pack

NOON = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
PLACES = "Meridian Larkspur Northfield Castellan Brightwater Ashdown Ferrow Quillon".split()
THINGS = "reactor dam turbine bridge archive licence pipeline observatory".split()
rng = random.Random("work")

def text(number):
    place, other = rng.sample(PLACES, 2)
    thing, year, figure = rng.choice(THINGS), rng.randint(1950, 2024), rng.randint(2, 990)
    return (
        f"The {place} {thing} number {number} was commissioned on 4 March {year}. It delivers "
        f"{figure} megawatts, and {other} Energy pays {figure / 10} million EUR a year for it."
    )

def retold(number):
    place, other = rng.sample(PLACES, 2)
    return (
        f"At {place} people have had a {rng.choice(THINGS)} since {rng.randint(1950, 2024)}; about "
        f"{rng.randint(2, 990)} MW come from it. For that, {other} Energy spends some "
        f"{rng.randint(1, 99)} million euros each year, which is more than was planned at first."
    )

class Embedder:
    identity, dimensions, thresholds = "words/256", 256, {}
    def embed_passages(self, texts):
        rows = np.zeros((len(texts), 256))
        for row, text in zip(rows, texts):
            for word in re.findall(r"\\w+", text.lower()) or [""]:
                row[hashlib.sha256(word.encode()).digest()[0]] += 1.0
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    def embed_query(self, text):
        return self.embed_passages([text])[0]

class Model:
    def call(self, call):
        return Reply(text=ANSWER, model=call.model)
    async def acall(self, call):
        return self.call(call)
    def stream(self, call):
        yield ANSWER
        yield self.call(call)

FACTS = [text(number) for number in range(200)]
ANSWER = FACTS[0] + " The Larkspur dam was sold for 97 million EUR on 2 June 1987."
QUESTIONS = [f"How many megawatts does the {p} {t} deliver, and since when?" for p in PLACES for t in THINGS]

def taken(call, items):
    times = []
    for item in items:
        began = time.process_time()
        call(item)
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times)

words = Embedder()
how = {"model": "gpt-4o", "budget_tokens": 500, "now": NOON, "embedder": words}
relay = Relay.open(embedder=words, models=Model(), model="any/model", clock=NOON, key="ab" * 32)
began = time.process_time()
relay.add(FACTS)
found = {"ingest 200": (time.process_time() - began) * 1000}
vectors = [words.embed_query(question) for question in QUESTIONS]
pack(QUESTIONS[0], FACTS[:60], **how)
examine(ANSWER, FACTS[:8], QUESTIONS[0], embedder=words)
relay.ask(QUESTIONS[0])
found["pack"] = taken(lambda q: pack(q, FACTS[:60], **how), QUESTIONS[:CALLS])
found["examine"] = taken(
    lambda q: examine(ANSWER, FACTS[:8], q, embedder=words), QUESTIONS[:CALLS]
)
long_answer, long_facts = " ".join(map(retold, range(9))), FACTS[:55]
examine(long_answer, long_facts, QUESTIONS[0])
found["examine long"] = taken(
    lambda q: examine(long_answer, long_facts, q), QUESTIONS[:CALLS]
)
found["ask"] = taken(lambda q: relay.ask(q, budget_tokens=600), QUESTIONS[:CALLS])
found["preview"] = taken(lambda q: relay.preview(q, budget_tokens=600), QUESTIONS[:CALLS])
found["search"] = taken(
    lambda v: [relay.fabric.nearest(v, 10) for _ in range(20)], vectors[:CALLS]
)
found["search words"] = taken(
    lambda q: [relay.fabric.search_text(q, 10) for _ in range(5)], QUESTIONS[:CALLS]
)
print(json.dumps(found))
"""


def measured(tree: Path, calls: int) -> dict[str, float]:
    """What one round costs in a tree, in milliseconds; of imports also how many modules."""
    found: dict[str, float] = {}
    for script in (IMPORT, f"CALLS = {calls}\n{WORK}"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            cwd=tree,
            env={**os.environ, **THREADS, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"the work failed in {tree}: {done.stderr[-1500:]}")
        found |= json.loads(done.stdout.splitlines()[-1])
    return found


def compared(commit: str, rounds: int, calls: int) -> dict[str, tuple[float, float]]:
    """The medians of a commit's tree and of this one, by what was measured."""
    here: list[dict[str, float]] = []
    there: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            for turn in range(rounds):
                # Who goes first changes, so that a machine that gets slower harms both alike.
                order = [(tree, there), (ROOT, here)]
                for place, into in order if turn % 2 == 0 else reversed(order):
                    into.append(measured(place, calls))
        finally:
            _git("worktree", "remove", "--force", str(tree))
    return {name: (_median(there, name), _median(here, name)) for name in here[0]}


def table(found: Mapping[str, tuple[float, float]]) -> str:
    """One line for each figure, with the ratio."""
    lines = [f"{'':16}{'commit':>10}{'here':>10}{'ratio':>8}"]
    for name, (before, now) in found.items():
        lines.append(f"{name:16}{before:10.2f}{now:10.2f}{now / before:8.3f}")
    return "\n".join(lines)


def _median(rounds: Sequence[Mapping[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=15, help="of each kind in a round")
    parser.add_argument("--json", type=Path, help="file for the figures")
    told = parser.parse_args(arguments)
    found = compared(told.commit, told.rounds, told.calls)
    print(table(found))
    if told.json:
        told.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
