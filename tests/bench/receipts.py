"""What a receipt costs: issuing it within its window, verifying it, replaying it, and its size.

Real passages of a sentence or a few each, or so many of them joined, are put as facts into a store
on disk and asked about; what is timed is the step `receipt` of each window as it is closed: its
content put together, signed, and written with its leaf of the log. Its commit is the window's own.
Times are of the process on the processor: medians over the questions of a round, and of the rounds
the lowest, since whoever else is at work on a machine only ever makes them longer. Threads of the
libraries that worked before may still spin and count with it, so the time of the issuing thread
alone stands beside it.

    python -m tests.bench.receipts --facts 50 --questions 40 --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import crp_integrations
from crp_integrations.receipt import replay_context
from crp_integrations.receipt.reconstruction import Texts, content_of
from crp_integrations.receipt.records import OmissionReason, Receipt, read, write
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import NOTHING
from crp_integrations.receipt.verify import verify
from crp_integrations.relay.build import open_relay
from tests.bench.fabric_corpus import HashEmbedder
from tests.bench.made_up import passages, question
from tests.bench.measure import has_one_thread, in_one_thread, loop_ms, median_ms
from tests.bench.receipt_packs import pack

STEP = "receipt"
WARM = 3


@dataclass(frozen=True, slots=True)
class ReceiptResult:
    """What was measured; times are CPU milliseconds, sizes bytes.

    Attributes:
        joined: passages that one fact is made of; `characters` of a fact's text, the median.
        candidates: facts in a receipt, the median; `shown` those in its context.
        rounds: of which the lowest median stands here.
        issue_ms: the step within the window that closes; `issue_thread_ms` its thread alone.
        verify_ms: reading, signature, tree and texts, from the bytes of the file.
        bytes_ms: rank, pack, order and render again, up to the messages as they were sent.
        together_ms: both of one file.
        replay_ms: everything that a receipt can be asked to do again without engines.
        payload_bytes: what is signed.
        file_bytes, packed_bytes: the file, and compressed (zlib 9).
        bare_bytes: compressed, with every text left out of it.
        replayed: whether all of them replayed with no part that differs.
        loop_ms: of a fixed loop of plain Python (`measure.loop_ms`) in each round; times of two
            runs compare by their ratio to it.
    """

    facts: int
    joined: int
    characters: int
    questions: int
    rounds: int
    candidates: int
    shown: int
    issue_ms: float
    issue_thread_ms: float
    issue_max_ms: float
    verify_ms: float
    bytes_ms: float
    together_ms: float
    replay_ms: float
    payload_bytes: int
    file_bytes: int
    packed_bytes: int
    bare_bytes: int
    replayed: bool
    loop_ms: float


class _Steps:
    """A tracer that notes the processor time of one step."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self.thread_ms: list[float] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start, own = time.process_time(), time.thread_time()
        yield
        if name == STEP:
            self.thread_ms.append((time.thread_time() - own) * 1000)
            self.ms.append((time.process_time() - start) * 1000)


def measure(
    facts: int = 50, *, questions: int = 40, rounds: int = 5, joined: int = 1
) -> ReceiptResult:
    """Measure windows over real passages.

    Args:
        facts: in the store; with 50 of them, each is a candidate of every question.
        joined: passages that one fact is made of.
        questions: how many windows are timed in a round.
        rounds: how often that is done.

    Raises:
        ConfigError: this environment has too few passages.
    """
    some = passages(facts * joined)
    asked_of = some[::joined]
    texts = [
        "\n\n".join(one.text for one in some[at : at + joined])
        for at in range(0, len(some), joined)
    ]
    steps = _Steps()
    with tempfile.TemporaryDirectory() as folder:
        relay = open_relay(
            Path(folder) / "kb", embedder=HashEmbedder(), tracer=steps, model="extractive"
        )
        with relay:
            relay.fabric.add(texts)
            asked = [question(asked_of[n % facts]) for n in range(rounds * questions + WARM)]
            # One need, so that a question has as many candidates as the settings say.
            answers = [relay.ask(one, sub_queries=(one,)) for one in asked]
            found = [relay.receipt(answer.receipt_id) for answer in answers]
    made = [one for one in found[WARM:] if one is not None]
    files = [write(one) for one in made]
    issued, in_thread = steps.ms[WARM:], steps.thread_ms[WARM:]
    parts = [slice(at, at + questions) for at in range(0, len(issued), questions)]
    timed = [
        {
            "loop": loop_ms(),
            "verify": median_ms(files[part], lambda data: verify(data, contents=False))[0],
            "bytes": median_ms(made[part], _bytes_again)[0],
            "together": median_ms(files[part], _checked)[0],
            "replay": median_ms(made[part], replay)[0],
        }
        for part in parts
    ]
    lowest = {name: round(min(one[name] for one in timed), 3) for name in timed[0]}
    return ReceiptResult(
        facts=facts,
        joined=joined,
        characters=round(median(map(len, texts))),
        questions=questions,
        rounds=len(parts),
        candidates=_middle(made, lambda one: sum(bool(leaf.fact_id) for leaf in one.leaves)),
        shown=_middle(made, lambda one: len(one.content["envelope"]["facts"])),
        issue_ms=round(min(median(issued[part]) for part in parts), 3),
        issue_thread_ms=round(min(median(in_thread[part]) for part in parts), 3),
        issue_max_ms=round(max(issued), 3),
        verify_ms=lowest["verify"],
        bytes_ms=lowest["bytes"],
        together_ms=lowest["together"],
        replay_ms=lowest["replay"],
        payload_bytes=_middle(made, lambda one: len(one.signed.payload)),
        file_bytes=_middle(made, lambda one: len(write(one))),
        packed_bytes=_middle(made, lambda one: len(zlib.compress(write(one), 9))),
        bare_bytes=_middle(made, lambda one: len(zlib.compress(write(_bare(one)), 9))),
        replayed=all(verify(data).ok and replay(read(data)).same for data in files),
        loop_ms=lowest["loop"],
    )


def _checked(data: bytes) -> None:
    receipt = read(data)
    verify(receipt, contents=False)
    _bytes_again(receipt)


def _bytes_again(receipt: Receipt) -> None:
    """Rank, pack and render again; refuse what differs."""
    content, texts = content_of(receipt), Texts(receipt)
    made = replay_context.ReplayedContext(
        receipt.content["envelope"] or {}, content, texts, NOTHING
    )
    for part in (replay_context.selection, replay_context.context, replay_context.prompt):
        difference, _ = part(made)
        if difference is not None:
            raise AssertionError(f"the replay differs at {difference.place}")


def _bare(receipt: Receipt) -> Receipt:
    return receipt.without(dict.fromkeys(range(len(receipt.texts)), OmissionReason.REDACTED))


def _middle(made: Sequence[Receipt], of: Callable[[Receipt], int]) -> int:
    return round(median(map(of, made)))


MODULE: Final = "tests.bench.receipts"
AGAIN: Final = "tests.bench.receipt_packs"
SEEDS: Final = (0, 1, 4_294_967_295)


def run(
    packs: int,
    *,
    pythons: Sequence[str] = (),
    seeds: Sequence[int] = SEEDS,
    first: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Make receipts of random packs, and have them verified and replayed in other processes.

    Args:
        packs: how many.
        pythons: interpreters that have the package's dependencies; this one goes without saying.
        seeds: hash seeds; each interpreter after the first one takes one of them.
        first: number of the first pack.

    Returns:
        What each process found, and whether all of it is equal.
    """
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "receipts"
        with path.open("wb") as file:
            for number in range(first, first + packs):
                file.write(write(pack(number)))
        say(f"{packs} receipts, {path.stat().st_size:,} bytes")
        plans = [(sys.executable, seed) for seed in seeds[:2]]
        plans += [(python, seeds[-1]) for python in pythons]
        for python, seed in plans:
            runs.append(_elsewhere(python, seed, path))
            say(json.dumps(runs[-1]))
    return {
        "packs": packs,
        "runs": runs,
        "met": all(one["equal"] == one["receipts"] == packs for one in runs),
    }


def _elsewhere(python: str, seed: int, path: Path) -> dict[str, Any]:
    root = str(Path(crp_integrations.__file__).parents[1])
    done = subprocess.run(
        [python, "-m", AGAIN, str(path)],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{python} could not replay: {done.stderr[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line; status 1 where a pack differs."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--facts", type=int, default=50, help="in the store")
    parser.add_argument("--joined", type=int, default=1, help="passages of one fact")
    parser.add_argument("--questions", type=int, default=40, help="windows timed in a round")
    parser.add_argument("--rounds", type=int, default=5, help="the lowest median counts")
    parser.add_argument("--packs", type=int, default=0, help="random packs to replay instead")
    parser.add_argument(
        "--python", action="append", default=[], help="another interpreter; may be repeated"
    )
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    if not given.packs:
        result = asdict(
            measure(
                given.facts, questions=given.questions, rounds=given.rounds, joined=given.joined
            )
        )
        _write(given.json, result)
        for name, value in result.items():
            print(f"{name:18} {value}")
        return
    report = run(given.packs, pythons=given.python, say=lambda line: print(line, file=sys.stderr))
    _write(given.json, report)
    for one in report["runs"]:
        print(
            f"Python {one['python']}, hash seed {one['hash_seed']}: "
            f"{one['equal']} of {one['receipts']} equal"
        )
        for line in one["broken"]:
            print(f"  {line}")
    sys.exit(0 if report["met"] else 1)


def _write(path: Path | None, report: dict[str, Any]) -> None:
    if path:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
