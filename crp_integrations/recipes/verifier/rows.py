"""Labelled answers as rows of measures, with what is known of each claim and word."""

from __future__ import annotations

import difflib
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.attribution import attribute, segment_claims
from crp_integrations.dpe.stages.fidelity import verify_fidelity
from crp_integrations.dpe.state import State, Tools
from crp_integrations.dpe.verifier.alignment_verifier import AlignmentVerifier
from crp_integrations.dpe.verifier.claim_measures import Measured, measure
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.word_measures import Source
from crp_integrations.language.sentences import sentence_runs
from crp_integrations.seals import sha256_hex

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Answer:
    """A labelled answer.

    Attributes:
        group: data set and task; classes are balanced within it, the engine never sees it.
        wrong: whether it holds an unsupported claim.
        spans: where; None when that is not known.
    """

    group: str
    question: str
    context: str
    text: str
    wrong: bool
    spans: tuple[Span, ...] | None

    @property
    def source(self) -> str:
        """Hash of the context: what shares it is kept in one fold."""
        return sha256_hex(self.context.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Row:
    """A measured answer.

    Attributes:
        claims, words: 1 not supported, 0 supported, NaN not known.
        fidelity: the printed score of stage 3, from typed values alone.
        typed: for each claim whether stage 3 found a fabrication (1) or a distortion (2).
    """

    answer: Answer
    measured: Measured
    claims: np.ndarray[Any, np.dtype[np.float64]]
    words: np.ndarray[Any, np.dtype[np.float64]]
    fidelity: float
    typed: tuple[int, ...]


def read(path: Path) -> list[Answer]:
    """The labelled answers of a file; rows without a label are left out."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        given = [json.loads(line) for line in lines]
    name = path.name.split(".")[0]
    found = []
    for row in given:
        if "answer" in row:
            known = row["spans"] or not row["hallucinated"]
            spans = tuple((s["start"], s["end"]) for s in row["spans"]) if known else None
            task = row["task"].split(":")[0]
            group = name if task in name else f"{name}:{task}"
            found.append(
                Answer(group, row.get("question") or "", row["context"], row["answer"],
                       row["hallucinated"], spans)
            )  # fmt: skip
        elif row["label"] is not None:
            wrong = row["label"] != "supported"
            found.append(
                Answer(name, "", row["evidence"], row["claim"], wrong, None if wrong else ())
            )
    return with_edits(found)


def with_edits(answers: Sequence[Answer]) -> list[Answer]:
    """The answers, where a wrong one without spans gets those in which it differs from the
    nearest right one of its context; sets of minimal edits have one.
    """
    right: dict[str, list[str]] = defaultdict(list)
    for answer in answers:
        if not answer.wrong:
            right[answer.context].append(answer.text)
    return [
        Answer(a.group, a.question, a.context, a.text, a.wrong, _edits(a.text, right[a.context]))
        if a.wrong and a.spans is None and right.get(a.context)
        else a
        for a in answers
    ]


def _edits(text: str, others: Iterable[str]) -> tuple[Span, ...] | None:
    own = set(text.split())

    def alike(other: str) -> float:
        words = set(other.split())
        return len(own & words) / max(1, len(own | words))

    nearest = max(others, key=lambda other: (alike(other), other))
    if alike(nearest) < 0.6:
        return None
    matcher = difflib.SequenceMatcher(None, nearest, text, autojunk=False)
    found = tuple(
        (start, max(end, start + 1))
        for tag, _, _, start, end in matcher.get_opcodes()
        if tag != "equal"
    )
    return found or None


def measured(answer: Answer) -> Row | None:
    """An answer measured as the engine measures it; None when it makes no claim."""
    settings = DpeSettings(verifier="alignment")
    passages = tuple(
        (f"context-{n}", text) for n, text in enumerate(sentence_runs(answer.context), 1)
    )
    dossier = Dossier(answer.question, answer.text, passages)
    tools = Tools(None, AlignmentVerifier(), settings)
    state = State(dossier, tools, Context([text for _, text in passages]))
    state = verify_fidelity(attribute(segment_claims(state)))
    if not state.claims:
        return None
    found = measure(
        dossier.answer, dossier.question, state.claims, state.alignments, Source(state.context)
    )
    spans = answer.spans
    claims = np.array([_label(answer, c.start, c.end, len(state.claims)) for c in state.claims])
    words = np.full(len(found.starts), np.nan)
    if spans is not None:
        words = np.array(
            [
                float(any(a < end and start < b for a, b in spans))
                for start, end in zip(found.starts, found.ends, strict=True)
            ]
        )
    typed = tuple(
        max((1 if f.kind == "fabrication" else 2 for f in c.findings), default=0)
        for c in state.claims
    )
    return Row(answer, found, claims, words, state.fidelity, typed)


def _label(answer: Answer, start: int, end: int, count: int) -> float:
    if answer.spans is not None:
        return float(any(a < end and start < b for a, b in answer.spans))
    return 1.0 if count == 1 else float("nan")
