"""A golden set: questions with the sources that must be found, run again and again.

What comes out holds ids and numbers; the questions stay in the golden file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from crp_integrations.errors import ConfigError
from crp_integrations.fabric.records import Moment
from crp_integrations.records import Part, Record
from crp_integrations.seals import sha256

RECALL: Final = "recall"
PRECISION: Final = "precision"


class GoldenQuestion(Part):
    """A question and where its answer is.

    Attributes:
        sources: URIs or ids of the sources that hold the answer; a URI may be a suffix of the
            whole one, such as `manual.md`.
    """

    id: str = Field(min_length=1, max_length=160, pattern=r"^[\w.:-]+$")
    question: str = Field(min_length=1)
    sources: tuple[str, ...] = Field(min_length=1)


class ShownSource(Part):
    """A source of an item in a pack, as it may be named in a golden set."""

    source_id: str
    uri: str = ""


class GoldenScore(Part):
    """What one question came to.

    Attributes:
        recall: gold sources in the pack, over gold sources.
        precision: items of a gold source, over items; 0 for an empty pack.
    """

    id: str
    recall: float = Field(ge=0.0, le=1.0)
    precision: float = Field(ge=0.0, le=1.0)
    items: int = Field(ge=0)


class GoldenRun(Record):
    """A run over a golden set.

    Attributes:
        golden_hash: of the set; runs over another one are not compared.
        state_hash: of the fabric that was read.
        recall, precision: means over the questions.
    """

    SCHEMA = "golden-run/1"

    ran_at: Moment
    golden_hash: str
    state_hash: str
    recall: float = Field(ge=0.0, le=1.0)
    precision: float = Field(ge=0.0, le=1.0)
    scores: tuple[GoldenScore, ...]


class DriftLimits(Part):
    """How far a score may fall below the baseline, as a difference of shares."""

    recall_drop: float = Field(default=0.05, ge=0.0, le=1.0)
    precision_drop: float = Field(default=0.05, ge=0.0, le=1.0)


class GoldenDrift(Record):
    """A run beside its baseline.

    Attributes:
        alerts: names of the scores that fell too far.
        worse: ids of the questions whose recall fell, the furthest first.
    """

    SCHEMA = "golden-drift/1"

    run: GoldenRun
    baseline_recall: float
    baseline_precision: float
    alerts: tuple[str, ...]
    worse: tuple[str, ...]


def read_golden(path: Path) -> tuple[GoldenQuestion, ...]:
    """A golden set from a file, one JSON a line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigError(f"{str(path)!r:.200} cannot be read: {reason}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(GoldenQuestion.model_validate(json.loads(line)))
        except (ValueError, ValidationError, RecursionError):
            raise ConfigError(
                f"line {number} of {str(path)!r:.200} is no golden question; wanted a JSON object "
                "with id, question and sources"
            ) from None
    if not found:
        raise ConfigError(f"{str(path)!r:.200} holds no golden question")
    if len({one.id for one in found}) < len(found):
        raise ConfigError(f"{str(path)!r:.200} has an id twice")
    return tuple(found)


def run_golden(
    golden: Sequence[GoldenQuestion],
    retrieve: Callable[[str], Iterable[ShownSource]],
    *,
    now: Moment,
    state_hash: str = "",
) -> GoldenRun:
    """Ask every question and compare what was packed with where the answers are.

    Spec: Summit §Failure Modes & Mitigations
    """
    scores = tuple(_score(one, tuple(retrieve(one.question))) for one in golden)
    return GoldenRun(
        ran_at=now,
        golden_hash=golden_hash(golden),
        state_hash=state_hash,
        recall=sum(one.recall for one in scores) / len(scores),
        precision=sum(one.precision for one in scores) / len(scores),
        scores=scores,
    )


def golden_hash(golden: Sequence[GoldenQuestion]) -> str:
    """`sha256:` of a golden set, whatever the order of its lines."""
    return sha256("\n".join(sorted(one.model_dump_json() for one in golden)))


def compare_runs(
    run: GoldenRun, baseline: GoldenRun, limits: DriftLimits | None = None
) -> GoldenDrift:
    """A run beside an earlier one of the same set."""
    if run.golden_hash != baseline.golden_hash:
        raise ConfigError("the baseline is of another golden set; capture one of this set")
    allowed = limits or DriftLimits()
    # A drop of exactly what is allowed stays below the alarm whatever floats make of it.
    margin = 1e-9
    alerts = []
    if baseline.recall - run.recall > allowed.recall_drop + margin:
        alerts.append(RECALL)
    if baseline.precision - run.precision > allowed.precision_drop + margin:
        alerts.append(PRECISION)
    before = {one.id: one.recall for one in baseline.scores}
    fallen = [(one.recall - before[one.id], one.id) for one in run.scores]
    return GoldenDrift(
        run=run,
        baseline_recall=baseline.recall,
        baseline_precision=baseline.precision,
        alerts=tuple(alerts),
        worse=tuple(id_ for change, id_ in sorted(fallen) if change < 0),
    )


def _score(golden: GoldenQuestion, shown: Sequence[ShownSource]) -> GoldenScore:
    hits = [{name for name in golden.sources if _is_source(one, name)} for one in shown]
    found = set().union(*hits)
    return GoldenScore(
        id=golden.id,
        recall=len(found) / len(set(golden.sources)),
        precision=sum(map(bool, hits)) / len(shown) if shown else 0.0,
        items=len(shown),
    )


def _is_source(shown: ShownSource, name: str) -> bool:
    uri = shown.uri.partition("#")[0] if "#" not in name else shown.uri
    return name in (shown.source_id, uri) or uri.endswith("/" + name)
