"""Labelled answers from gzip JSON lines of two shapes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crp_integrations.evaluation.data_rows import each
from crp_integrations.language.sentences import sentence_runs
from crp_integrations.seals import sha256_hex

FORM = "answer, context, hallucinated, or with claim, evidence, label"


@dataclass(frozen=True, slots=True)
class Case:
    """One answer or claim with its context and gold label.

    Attributes:
        task: the file's word, for grouping figures; no system is told.
        spans: unsupported stretches of the answer; None where the file marks none.
    """

    task: str
    question: str
    context: str
    answer: str
    hallucinated: bool
    spans: tuple[tuple[int, int], ...] | None = None

    @property
    def source(self) -> str:
        """Hash of the context; folds keep what shares it together."""
        return sha256_hex(self.context.encode("utf-8", "replace"))

    @property
    def passages(self) -> tuple[tuple[str, str], ...]:
        """The context as facts with ids."""
        return tuple(
            (f"context-{n}", text) for n, text in enumerate(sentence_runs(self.context), 1)
        )


def name_of(path: Path) -> str:
    """The data set's name, the file's without its endings."""
    return path.name.split(".")[0]


def read(path: Path) -> list[Case]:
    """The labelled cases of a file; pairs without a label are left out.

    Raises:
        RequestError: the file cannot be read, or a line is not of one of the two shapes.
    """
    made = each(path, FORM, lambda row: _case(row, row.get("task") or name_of(path)))
    cases = [case for case in made if case is not None]
    if any(case.spans for case in cases):
        return cases
    return [Case(c.task, c.question, c.context, c.answer, c.hallucinated) for c in cases]


def _case(row: dict[str, Any], task: str) -> Case | None:
    """The case of a row; None for a pair without a label."""
    if "answer" in row:
        spans = tuple((s["start"], s["end"]) for s in row.get("spans") or ())
        wrong = bool(row["hallucinated"])
        return Case(task, row.get("question") or "", row["context"], row["answer"], wrong, spans)
    if row["label"] is None:
        return None
    return Case(task, "", row["evidence"], row["claim"], row["label"] != "supported")
