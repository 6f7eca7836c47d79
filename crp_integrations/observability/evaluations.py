"""Recorded evaluations of windows, and golden sets that are run repeatedly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from crp_integrations.errors import ConfigError
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.window_trace import WindowEvaluation, WindowTrace
from crp_integrations.records import Part, Record
from crp_integrations.seals import sha256


class Feedback(Part):
    """Feedback of a user or reviewer on a window.

    Attributes:
        completed: whether the answer let the user complete the task.
        csat: the user's satisfaction, from 1 to 5.
        pack_correct: a reviewer's judgement of the pack; overrides the verifier's.
        task_correct: whether the answer is right, by a gold answer or a person.
    """

    completed: bool | None = None
    csat: int | None = Field(default=None, ge=1, le=5)
    pack_correct: bool | None = None
    task_correct: bool | None = None


class RotPoint(Part):
    """A point of a context-rot curve: a quality at a depth and a length of context."""

    tokens: int = Field(ge=0)
    depth: float = Field(ge=0.0, le=1.0)
    quality: float = Field(ge=0.0, le=1.0)


class Evaluation(Record):
    """One evaluation of a window, without any text.

    Spec: Summit §Evaluation & Observability

    Attributes:
        latency_us: time of the pack's assembly in microseconds; 0 if it was not measured.
        retrieval_precision, retrieval_recall: scores against gold sources; None without them, then
            use the proxies of `measured`.
        rot: context-rot curve of the evaluation, filled in by the harness.
    """

    SCHEMA = "evaluation/1"

    window_id: str = Field(min_length=1)
    session_id: str = ""
    ledger_hmac: str = ""
    latency_us: int = Field(default=0, ge=0)
    measured: WindowEvaluation | None = None
    feedback: Feedback = Feedback()
    retrieval_precision: float | None = Field(default=None, ge=0.0, le=1.0)
    retrieval_recall: float | None = Field(default=None, ge=0.0, le=1.0)
    rot: tuple[RotPoint, ...] = ()

    @classmethod
    def of(cls, trace: WindowTrace, feedback: Feedback | None = None) -> Evaluation:
        """The evaluation of a sealed window."""
        pack = trace.pack
        return cls(
            window_id=trace.window_id,
            session_id=trace.session_id,
            ledger_hmac=pack.ledger_hmac if pack else "",
            latency_us=pack.assembly_us if pack else 0,
            measured=trace.evaluated,
            feedback=feedback or Feedback(),
        )


class EvaluationLog:
    """An append-only file of evaluations, as JSON lines.

    A window may have several: one when it was sealed, others with later feedback.
    `merge_evaluations` combines them.
    """

    def __init__(self, path: Path) -> None:
        """Set the file, which is created when an evaluation is added."""
        self.path = path

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation."""
        line = json.dumps(evaluation.model_dump(mode="json"), sort_keys=True) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                if file.tell():
                    file.seek(-1, 2)
                    # Do not append to a last line that an editor left without a line end.
                    if file.read(1) != b"\n":
                        line = "\n" + line
                file.write(line.encode())
        except OSError as error:
            raise ConfigError(
                f"{str(self.path)!r:.200} cannot be written: {error.strerror}"
            ) from error

    def read(self) -> Iterator[Evaluation]:
        """Every evaluation, in order; none if the file does not exist."""
        for number, line in _read_lines(self.path) if self.path.exists() else ():
            try:
                yield Evaluation.model_validate_json(line)
            except ValidationError as error:
                place = error.errors(include_input=False, include_url=False)[0]["loc"]
                where = ".".join(map(str, place)) or "wanted a JSON object"
                raise ConfigError(
                    f"line {number} of {str(self.path)!r:.200} is not an evaluation: {where}"
                ) from None


def _read_lines(path: Path) -> list[tuple[int, str]]:
    """The non-empty lines of a file, with line numbers from 1."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not valid UTF-8"
        raise ConfigError(f"{str(path)!r:.200} cannot be read: {reason}") from None
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def merge_evaluations(evaluations: Iterable[Evaluation]) -> dict[str, Evaluation]:
    """Combine the evaluations of each window: the last non-empty value of each field."""
    merged: dict[str, Evaluation] = {}
    for evaluation in evaluations:
        before = merged.setdefault(evaluation.window_id, evaluation)
        changes = {name: value for name, value in evaluation if value not in (None, "", 0, ())}
        opinions = evaluation.feedback.model_dump(exclude_none=True)
        changes["feedback"] = before.feedback.model_copy(update=opinions)
        merged[evaluation.window_id] = before.model_copy(update=changes)
    return merged


RECALL: Final = "recall"
PRECISION: Final = "precision"
# Maximum fall of a score below the baseline without an alert; the small term absorbs rounding
# errors for a fall of exactly .05.
MAX_FALL: Final = 0.05 + 1e-9


class GoldenQuestion(Part):
    """A question and the sources of its answer.

    Attributes:
        sources: URIs or ids of the sources that contain the answer; a URI may be given by its
            last path segments, such as `manual.md`.
    """

    id: str = Field(min_length=1, max_length=160, pattern=r"^[\w.:-]+$")
    question: str = Field(min_length=1)
    sources: tuple[str, ...] = Field(min_length=1)


class ShownSource(Part):
    """The source of an item in a pack, by id and URI."""

    source_id: str
    uri: str = ""


class GoldenScore(Part):
    """The scores of one question.

    Attributes:
        recall: share of the gold sources that are in the pack.
        precision: share of the items that are from a gold source; 0 for an empty pack.
    """

    id: str
    recall: float = Field(ge=0.0, le=1.0)
    precision: float = Field(ge=0.0, le=1.0)
    items: int = Field(ge=0)


class GoldenRun(Record):
    """A run over a golden set.

    Attributes:
        golden_hash: hash of the set; only runs over the same set are compared.
        state_hash: state hash of the fabric.
        recall, precision: means over the questions.
    """

    SCHEMA = "golden-run/1"

    ran_at: Moment
    golden_hash: str
    state_hash: str
    recall: float = Field(ge=0.0, le=1.0)
    precision: float = Field(ge=0.0, le=1.0)
    scores: tuple[GoldenScore, ...]


class GoldenDrift(Record):
    """A run compared with its baseline.

    Attributes:
        alerts: names of the scores that fell too far.
        worse: ids of the questions whose recall fell, largest fall first.
    """

    SCHEMA = "golden-drift/1"

    run: GoldenRun
    baseline_recall: float
    baseline_precision: float
    alerts: tuple[str, ...]
    worse: tuple[str, ...]


def read_golden(path: Path) -> tuple[GoldenQuestion, ...]:
    """Read a golden set from a file of JSON lines."""
    questions = []
    for number, line in _read_lines(path):
        try:
            questions.append(GoldenQuestion.model_validate(json.loads(line)))
        except (ValueError, ValidationError, RecursionError):
            raise ConfigError(
                f"line {number} of {str(path)!r:.200} is not a golden question; wanted a JSON "
                "object with id, question and sources"
            ) from None
    if not questions:
        raise ConfigError(f"{str(path)!r:.200} contains no golden question")
    if len({question.id for question in questions}) < len(questions):
        raise ConfigError(f"{str(path)!r:.200} has an id twice")
    return tuple(questions)


def run_golden(
    golden: Sequence[GoldenQuestion],
    retrieve: Callable[[str], Iterable[ShownSource]],
    *,
    now: Moment,
    state_hash: str = "",
) -> GoldenRun:
    """Ask every question and compare the packed sources with the gold sources.

    Spec: Summit §Failure Modes & Mitigations
    """
    scores = tuple(_score(question, tuple(retrieve(question.question))) for question in golden)
    return GoldenRun(
        ran_at=now,
        golden_hash=golden_hash(golden),
        state_hash=state_hash,
        recall=sum(score.recall for score in scores) / len(scores),
        precision=sum(score.precision for score in scores) / len(scores),
        scores=scores,
    )


def golden_hash(golden: Sequence[GoldenQuestion]) -> str:
    """`sha256:` of a golden set, independent of the order of its lines."""
    return sha256("\n".join(sorted(question.model_dump_json() for question in golden)))


def compare_runs(run: GoldenRun, baseline: GoldenRun) -> GoldenDrift:
    """Compare a run with an earlier one of the same set."""
    if run.golden_hash != baseline.golden_hash:
        raise ConfigError("the baseline is of another golden set; capture one of this set")
    falls = {RECALL: baseline.recall - run.recall, PRECISION: baseline.precision - run.precision}
    before = {score.id: score.recall for score in baseline.scores}
    changes = [(score.recall - before[score.id], score.id) for score in run.scores]
    return GoldenDrift(
        run=run,
        baseline_recall=baseline.recall,
        baseline_precision=baseline.precision,
        alerts=tuple(name for name, fall in falls.items() if fall > MAX_FALL),
        worse=tuple(id_ for change, id_ in sorted(changes) if change < 0),
    )


def _score(golden: GoldenQuestion, shown: Sequence[ShownSource]) -> GoldenScore:
    hits = [{name for name in golden.sources if _is_source(source, name)} for source in shown]
    covered = set().union(*hits)
    return GoldenScore(
        id=golden.id,
        recall=len(covered) / len(set(golden.sources)),
        precision=sum(map(bool, hits)) / len(shown) if shown else 0.0,
        items=len(shown),
    )


def _is_source(shown: ShownSource, name: str) -> bool:
    uri = shown.uri.partition("#")[0] if "#" not in name else shown.uri
    return name in (shown.source_id, uri) or uri.endswith("/" + name)
