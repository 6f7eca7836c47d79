"""Answers of your own traffic, logged with their evidence and report, and labelled in a review.

`answer_log` is an `on_report` receiver that appends a line for each answer; `crp eval collect` asks
a reviewer about each line and writes the labelled rows that `crp eval answers` scores.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crp_integrations.dpe.records import Report
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.evaluation.data_sets import each
from crp_integrations.relay.judge import OnReport

FORM: Final = "id, question, passages, answer and report, as answer_log writes it"
# Type of a stretch that a reviewer names, since a reviewer is not asked for its kind.
REVIEWED: Final = "reviewed"


@dataclass(frozen=True, slots=True)
class CollectedAnswer:
    """A logged answer with the passages that the model saw and the report.

    Attributes:
        id: the report's hash.
    """

    id: str
    question: str
    passages: tuple[str, ...]
    answer: str
    report: Report


def answer_log(path: str | Path) -> OnReport:
    """A receiver for `on_report=` that appends each answer, its evidence and its report to a file.

    The file contains texts of your users and documents; only its owner may read it. It is safe
    under threads and between processes: a line is one write.

    Args:
        path: file of JSON lines; created if it does not exist.

    Raises:
        ConfigError: the file cannot be opened for appending.
    """
    lock = threading.Lock()
    try:
        os.close(private_file(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be appended to: {error.strerror}") from error

    def append(report: Report) -> None:
        examined = report.examined
        if examined is None:
            return
        row = {
            "id": report.report_hash,
            "question": examined.question,
            "passages": list(examined.passages),
            "answer": examined.answer,
            "report": report.model_dump(mode="json"),
        }
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
        with lock:
            file = private_file(path)
            try:
                os.write(file, line)
            finally:
                os.close(file)

    return append


def private_file(path: str | Path) -> int:
    """A file opened for appending; a new one can be read by its owner only."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def collected_answers(
    path: Path, skipped: Callable[[str], None] | None = None
) -> Iterator[CollectedAnswer]:
    """The logged answers of a file, each id once.

    Args:
        skipped: receives a sentence if the last line is torn; None refuses such a line.

    Raises:
        RequestError: a line is not one that `answer_log` wrote.
    """
    seen: set[str] = set()
    for row in each(path, FORM, _collected, skipped):
        if row.id not in seen:
            seen.add(row.id)
            yield row


def _collected(row: dict[str, Any]) -> CollectedAnswer:
    texts = [row["id"], row["question"], row["answer"], *row["passages"]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("not a string")
    report = Report.model_validate(row["report"])
    return CollectedAnswer(
        row["id"], row["question"], tuple(row["passages"]), row["answer"], report
    )


def labelled_row(
    collected: CollectedAnswer, *, wrong: bool, stretches: Sequence[str] | None = None
) -> dict[str, Any]:
    """A row as `crp eval answers` reads it.

    Args:
        stretches: the wrong words, each copied from the answer; None for those that the report
            flags.

    Raises:
        RequestError: a stretch is not in the answer.
    """
    spans = []
    if wrong and stretches is None:
        for claim in collected.report.claims:
            if claim.flagged:
                start, end = claim.wrong or (claim.start, claim.end)
                spans.append({"start": start, "end": end, "type": str(claim.error or REVIEWED)})
    elif wrong:
        for words in stretches or ():
            start = collected.answer.find(words)
            if start < 0:
                raise RequestError(f"{words!r:.80} is not in the answer; copy the wrong words")
            spans.append({"start": start, "end": start + len(words), "type": REVIEWED})
    return {
        "id": collected.id,
        "question": collected.question,
        "passages": list(collected.passages),
        "answer": collected.answer,
        "hallucinated": wrong,
        "spans": spans,
    }
