"""Evidence in the context beside other retrievers, on data sets of documents and questions.

`crp eval selection` measures the same of ours alone; `selection_peers` holds the others. Nothing
here is fitted.

    python -m tests.bench.selection --data DIR --budgets 512,1024,2048 --markdown --json OUT
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crp_integrations.errors import CRPError, RequestError
from crp_integrations.evaluation import selection
from crp_integrations.evaluation.context_metrics import (
    FULL,
    HIT,
    LEAST_PIECE,
    LEAST_RUN,
    MRR,
    TextAxis,
)
from crp_integrations.evaluation.data_sets import Collection, find
from crp_integrations.evaluation.selection import (
    HEADLINE,
    MACRO,
    SYSTEMS,
    RelayContexts,
    SelectionPlan,
    SystemOpener,
    measure_sets,
    plan_of,
)
from crp_integrations.ports import Embedder, TokenCounter
from tests.bench.measure import has_one_thread, in_one_thread, versions
from tests.bench.selection_adapters import ADAPTERS, COMPRESSION, openers
from tests.bench.selection_peers import CUTTER, DEPTH, PACKER, PEERS, UNIT_TOKENS, PeerOpeners

MODULE = "tests.bench.selection"
LIBRARIES = (
    "crp-integrations",
    "bm25s",
    "rank-bm25",
    "langchain-core",
    "langchain-classic",
    "langchain-community",
    "llama-index-core",
    "llama-index-retrievers-bm25",
    "numpy",
    "onnxruntime",
    "tiktoken",
)
OURS = "crp"
# All systems: `crp`, `literal`, the adapters, and the peers.
ALL = (*dict.fromkeys((*SYSTEMS, *ADAPTERS, *PEERS, COMPRESSION)),)
RESAMPLES = 10_000
SEED = 0
_BLOCK = 500
_NONE = "–"
Floats = npt.NDArray[np.float64]
# The budget that a set's headline number is at, by the set's name; others have the usual one.
USUAL = {
    "hotpot": 512,
    "musique": 1_024,
    "locomo_half": 1_024,
    "chunking_eval": 1_024,
    "codebase": 2_048,
}
# Name and the settings that differ from the default preset. Names begin with `crp - `.
ABLATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("crp - mixed scores and parts", {"envelope": {"hybrid": {"enabled": False}}}),
    ("crp - words in the mix", {"envelope": {"hybrid": {"lexical_share": 0.0}}}),
    ("crp - best stretch", {"envelope": {"hybrid": {"stretch_share": 0.0}}}),
    ("crp - neighbours", {"envelope": {"hybrid": {"neighbour_share": 0.0}}}),
    ("crp - second hop", {"envelope": {"hybrid": {"hop_weight": 0.0}}}),
    ("crp - facts read for the hop", {"envelope": {"hybrid": {"hop_hits": 0}}}),
    ("crp - parts of facts", {"envelope": {"hybrid": {"whole_share": 1.0}}}),
    ("crp - whole facts first", {"envelope": {"hybrid": {"whole_share": 0.0}}}),
    ("crp - an end to skipping", {"envelope": {"hybrid": {"passed_over": None}}}),
    ("crp - decomposition", {"envelope": {"decompose": {"rules": False}}}),
    ("crp - adaptive weights", {"envelope": {"adaptive": False}}),
    ("crp - importance", {"envelope": {"importance_factor": 0.0}}),
    ("crp - islands", {"envelope": {"expansion_below": 0}}),
    ("crp - duplicates left out", {"envelope": {"duplicate_similarity": 1.0}}),
    (
        "crp - joined passages",
        {"fabric": {"chunking": {"join_up_to_tokens": 0, "split_above_tokens": 512}}},
    ),
    # The two that are off by default are switched on.
    ("crp - no graph (2 hops on)", {"envelope": {"graph": {"hops": 2}}}),
    (
        "crp - no screening (on)",
        {"envelope": {"screening": {"enabled": True, "relevance_floor": 0.1}}},
    ),
)


def resampled(differences: Floats, *, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """Means over questions drawn with replacement, the same draw for every column.

    Args:
        differences: one row a question, one column a comparison, shape (n, m), n at least 1.

    Returns:
        Shape (resamples, m).
    """
    draw = np.random.default_rng(seed)
    number = len(differences)
    chances = np.full(number, 1.0 / number)
    means = np.empty((resamples, differences.shape[1]))
    for first in range(0, resamples, _BLOCK):
        size = min(_BLOCK, resamples - first)
        # How often each question is drawn; rows of indices would be gathered one by one.
        counts = draw.multinomial(number, chances, size=size)
        means[first : first + size] = counts @ differences / number
    return means


def interval(means: Floats) -> tuple[list[float], list[float]]:
    """Lower and upper ends of the middle 95 % of each column."""
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    return low.tolist(), high.tolist()


# Metrics whose differences get intervals; the others say what a context is like, not how good.
COMPARED = ("evidence_recall", "full_recall", "precision")


def compared(
    values: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]],
    usual: Mapping[str, int],
    budgets: Sequence[int],
) -> dict[str, Any]:
    """The intervals of a report.

    Args:
        values: one value a question, by system, set and metric, in the same order of questions.
        usual: the budget of each set's headline number.
        budgets: all that were measured.

    Returns:
        `intervals`: by system, set (`macro` too) and metric the mean difference
        `crp` minus the system with the ends of its 95 % interval; empty without `crp`.
    """
    found: dict[str, Any] = {"intervals": {}}
    others = [system for system in values if system != OURS]
    if OURS not in values or not others:
        return found
    metrics = [MRR, *(f"{metric}@{budget}" for metric in COMPARED for budget in budgets)]
    sums: dict[str, Any] = {}
    for number, name in enumerate(usual):
        compared_here = [system for system in others if name in values[system]]
        table = np.array(
            [
                np.subtract(values[OURS][name][metric], values[system][name][metric])
                for system in compared_here
                for metric in metrics
            ]
        ).T
        # Sets are drawn independently of each other.
        means = resampled(table, seed=SEED + number)
        low, high = interval(means)
        for place, system in enumerate(compared_here):
            first = place * len(metrics)
            rows = found["intervals"].setdefault(system, {})
            rows[name] = {
                metric: _row(float(table[:, first + n].mean()), low[first + n], high[first + n])
                for n, metric in enumerate(metrics)
            }
            at = first + metrics.index(f"{HEADLINE}@{usual[name]}")
            held = sums.setdefault(system, [])
            held.append((float(table[:, at].mean()), means[:, at]))
    for system, held in sums.items():
        if len(held) == len(usual):
            together = np.mean([drawn for _, drawn in held], axis=0)[:, None]
            low, high = interval(together)
            mean = float(np.mean([one for one, _ in held]))
            found["intervals"][system][MACRO] = {HEADLINE: _row(mean, low[0], high[0])}
    found["bootstrap"] = {"resamples": RESAMPLES, "seed": SEED, "level": 0.95}
    return found


def _row(mean: float, low: float, high: float) -> dict[str, float]:
    return {"difference": round(mean, 6), "low": round(low, 6), "high": round(high, 6)}


def plan(
    systems: Sequence[str], budgets: Sequence[int], queries: int | None, *, ablate: bool
) -> SelectionPlan:
    """The plan of a command's options.

    Args:
        systems: names; empty for all.
        budgets: tokens; empty for the usual five.
        ablate: measure `crp` with single settings switched off, and no peers unless named.

    Raises:
        RequestError: a system is not known, or a number is below 1.
    """
    ablations = [name for name, _ in ABLATIONS]
    usual = tuple(systems) or ((OURS,) if ablate else ALL)
    chosen = (*usual, *(ablations if ablate else ()))
    return plan_of(chosen, budgets, queries, known=(*ALL, *ablations), usual=USUAL)


def run(
    folders: Sequence[Path],
    chosen: SelectionPlan,
    *,
    cache: Path | None = None,
    embedder: Embedder | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Measure, and say how sure the differences are.

    Args:
        folders: of the sets, see `selection_data.find`.
        cache: folder that keeps vectors between runs.
        embedder: None for the one that ships.
        say: called with a line about what is being done.

    Raises:
        RequestError: a set is not of the format.
        ConfigError: a setting of an ablation is not usable.
    """
    peers = PeerOpeners()
    makers: dict[str, SystemOpener] = {
        **peers.by_name(),
        **openers(peers),
        **{name: partial(_ablated, given) for name, given in ABLATIONS},
    }
    found = measure_sets(folders, chosen, cache=cache, embedder=embedder, openers=makers, say=say)
    report = found.report(chosen)
    report.update(compared(found.values, found.budgets, chosen.budgets))
    report["settings"]["peers"] = {
        "units": f"{CUTTER}, at most {UNIT_TOKENS} tokens, no overlap",
        "packer": PACKER,
        "depth": DEPTH,
    }
    report["settings"]["evidence"] = {
        "full": FULL,
        "hit": HIT,
        "run": LEAST_RUN,
        "piece": LEAST_PIECE,
    }
    report["settings"]["ablations"] = {
        name: given for name, given in ABLATIONS if name in found.digests
    }
    report["versions"] = versions(*LIBRARIES)
    return report


def _ablated(
    given: Mapping[str, Any],
    collection: Collection,
    axis: TextAxis,
    embedder: Embedder,
    counter: TokenCounter,
) -> RelayContexts:
    return RelayContexts(collection, axis, embedder, {"preset": "default", **given})


def headings(report: dict[str, Any]) -> tuple[str, ...]:
    """System, the sets with the budget of their numbers, macro mean, and how sure `crp` is."""
    return (*selection.headings(report), "crp minus it, 95 %")


def table(report: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Evidence recall in per cent at each set's usual budget, one row a system, in order."""
    for row in selection.table(report):
        yield (*row, _sure(report, row[0]))
    usual = report["settings"]["usual_budgets"]
    for system, why in report["settings"]["missing"].items():
        yield (system, *(_NONE for _ in usual), _NONE, why)


def below(report: dict[str, Any]) -> list[str]:
    """Where `crp` is surely below a peer: the whole interval at the usual budget under zero."""
    usual = report["settings"]["usual_budgets"]
    return [
        f"{name}: {rows[name][f'{HEADLINE}@{budget}']['difference']:+.3f} against {system}"
        for system, rows in report["intervals"].items()
        for name, budget in usual.items()
        if name in rows and rows[name][f"{HEADLINE}@{budget}"]["high"] < 0.0
    ]


def markdown(report: dict[str, Any]) -> str:
    """The table in Markdown."""
    head = headings(report)
    side = ("---", *("---:" for _ in head[1:]))
    rows = (head, side, *table(report))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _sure(report: dict[str, Any], system: str) -> str:
    row = report["intervals"].get(system, {}).get(MACRO, {}).get(HEADLINE)
    if row is None:
        return ""
    return f"{100 * row['difference']:+.1f} [{100 * row['low']:+.1f}, {100 * row['high']:+.1f}]"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a set's folder, or one of sets")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--systems", default="", help="names, with commas between; default all")
    parser.add_argument("--sets", default="", help="names, with commas between; default all")
    parser.add_argument("--budgets", default="", help="tokens, with commas between")
    parser.add_argument("--queries", type=int, help="at most so many questions of each set")
    parser.add_argument("--cache", type=Path, help="keeps vectors between runs")
    parser.add_argument("--ablate", action="store_true", help="crp, and it with parts left out")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    try:
        chosen = plan(
            _names(given.systems), _numbers(given.budgets), given.queries, ablate=given.ablate
        )
        folders = find(given.data, _names(given.sets))
        cache = given.cache or Path(tempfile.gettempdir()) / "crp-bench-selection"
        report = run(folders, chosen, cache=cache, say=_say)
        if given.json:
            given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except (CRPError, OSError) as error:
        sys.exit(f"crp: {error}")
    if given.quiet:
        return
    if given.markdown:
        print(markdown(report))
        return
    rows = [headings(report), *table(report)]
    wide = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        first, *others = (cell.rjust(width) for cell, width in zip(row, wide, strict=True))
        print("  ".join((first.strip().ljust(wide[0]), *others)))
    for line in below(report):
        print(f"surely below: {line}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    names = _names(text)
    if not all(name.isdecimal() for name in names):
        raise RequestError(f"--budgets is {text!r:.40}, wanted numbers with commas between")
    return [int(name) for name in names]


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
