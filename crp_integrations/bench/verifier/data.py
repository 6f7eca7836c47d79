"""Labelled answers from gzip JSON lines of two shapes."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

from crp_integrations.errors import RequestError
from crp_integrations.language.sentences import sentence_runs
from crp_integrations.seals import sha256_hex


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
        RequestError: the file is not of one of the two shapes.
    """
    cases = []
    marked = False
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                task = row.get("task") or name_of(path)
                if "answer" in row:
                    spans = tuple((s["start"], s["end"]) for s in row.get("spans") or ())
                    marked = marked or bool(spans)
                    cases.append(
                        Case(task, row.get("question") or "", row["context"], row["answer"],
                             bool(row["hallucinated"]), spans)
                    )  # fmt: skip
                elif row["label"] is not None:
                    wrong = row["label"] != "supported"
                    cases.append(Case(task, "", row["evidence"], row["claim"], wrong))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RequestError(
            f"{path.name} is no file of answers or pairs, wanted gzip JSON lines with "
            "'answer, context, hallucinated' or 'claim, evidence, label'"
        ) from error
    if marked:
        return cases
    return [Case(c.task, c.question, c.context, c.answer, c.hallucinated) for c in cases]
