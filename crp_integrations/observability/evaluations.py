"""Recorded evaluations: what a window came to, what its user said, what a gold answer says."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import Field, ValidationError

from crp_integrations.errors import ConfigError
from crp_integrations.governance.window_evaluation import WindowEvaluation
from crp_integrations.governance.window_trace import WindowTrace
from crp_integrations.records import Part, Record


class Feedback(Part):
    """What a caller tells of a window: of its user, or of a person who reviewed it.

    Attributes:
        completed: the user's task was done with the answer.
        csat: the user's satisfaction, from 1 to 5.
        pack_correct: a reviewer's word on the pack; it stands above the verifier's.
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
    """One evaluation; ids, numbers and words of closed lists.

    Spec: Summit §Evaluation & Observability

    Attributes:
        latency_us: of the pack's assembly, in microseconds; 0 where the clock stood.
        retrieval_precision, retrieval_recall: against gold sources; None without them, then the
            proxies of `measured` stand for them.
        rot: a context-rot curve that belongs to the evaluation; the harness fills it.
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
        """The evaluation of a window as it was sealed."""
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
    """Evaluations in a file, one JSON a line, added at its end.

    A window may have several: the first when it was sealed, others when somebody said something
    of it. `merged` reads them as one.
    """

    def __init__(self, path: Path) -> None:
        """Name the file; it is made when something is added."""
        self.path = path

    def add(self, evaluation: Evaluation) -> None:
        """Add an evaluation."""
        line = json.dumps(evaluation.model_dump(mode="json"), sort_keys=True) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                # A last line that an editor left without its end stays a line of its own.
                if file.tell() and not _ends_with_newline(file):
                    line = "\n" + line
                file.write(line.encode())
        except OSError as error:
            raise ConfigError(
                f"{str(self.path)!r:.200} cannot be written: {error.strerror}"
            ) from error

    def read(self) -> Iterator[Evaluation]:
        """Every evaluation, in order; none where there is no file."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise ConfigError(f"{str(self.path)!r:.200} cannot be read: {reason}") from None
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                yield Evaluation.model_validate_json(line)
            except ValidationError as error:
                place = error.errors(include_input=False, include_url=False)[0]["loc"]
                where = ".".join(map(str, place)) or "wanted a JSON object"
                raise ConfigError(
                    f"line {number} of {str(self.path)!r:.200} is no evaluation: {where}"
                ) from None


def _ends_with_newline(file: BinaryIO) -> bool:
    """Whether a file's last line has its end."""
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def merge_evaluations(evaluations: Iterable[Evaluation]) -> dict[str, Evaluation]:
    """One evaluation a window: of each field the last that says something."""
    found: dict[str, Evaluation] = {}
    for one in evaluations:
        before = found.get(one.window_id)
        if before is None:
            found[one.window_id] = one
            continue
        said = one.feedback.model_dump(exclude_none=True)
        told = {
            name: value
            for name in type(one).model_fields
            if name not in ("feedback", "window_id")
            and (value := getattr(one, name)) not in (None, "", 0, ())
        }
        feedback = before.feedback.model_copy(update=said)
        found[one.window_id] = before.model_copy(update={**told, "feedback": feedback})
    return found
