"""Labelled answers as rows of measures, with what is known of each claim and word.

Changed sentences of our own, over text whose licence allows it.
"""

from __future__ import annotations

import difflib
import gzip
import itertools
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.attribution import attribute, segment_claims
from crp_integrations.dpe.stages.fidelity import verify_fidelity
from crp_integrations.dpe.state import State, Tools
from crp_integrations.dpe.verifier.claim_measures import Measured, measure
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features_verifier import AlignmentVerifier
from crp_integrations.dpe.verifier.word_measures import Source
from crp_integrations.language.text import sentence_runs
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


SEED: Final = 11
GROUP: Final = "made"
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?![\w])")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})?")
_VERB = re.compile(r"\b(is|was|are|were|has|have|will|can|could|should)\b(?! not\b| no\b)")
_NOT = re.compile(r"\b(is|was|are|were|has|have|will|can|could|should) not\b")
_GAP = re.compile(r"\s+")
_SENTENCE = re.compile(r"(?<=[.!?]) +(?=[A-Z])")


def changed_answers(answers: Sequence[Answer], most: int = 3_000) -> list[Answer]:
    """Supported and changed answers over the contexts of answers, evenly."""
    chooser = random.Random(SEED)
    contexts = sorted({answer.context for answer in answers if len(answer.context) > 150})
    cut = {context: _sentences(context) for context in contexts}
    usable = [context for context in contexts if cut[context]]
    chooser.shuffle(usable)
    found: list[Answer] = []
    for number, context in enumerate(itertools.cycle(usable)):
        if len(found) >= most or number >= 4 * len(usable):
            break
        start = chooser.randrange(len(cut[context]))
        chosen = cut[context][start : start + chooser.randint(1, 4)]
        at = chooser.randrange(len(chosen))
        kind = chooser.choice(("number", "name", "negation", "foreign"))
        wrong = list(chosen)
        if kind == "foreign":
            other = chooser.choice(usable)
            sentence = chooser.choice(cut[other])
            if other == context or sentence in context:
                continue
            inner = (0, len(sentence))
            if len(chosen) == 1 and chooser.random() < 0.5:
                wrong = [sentence]
            else:
                at = chooser.randint(0, len(chosen))
                wrong.insert(at, sentence)
        else:
            changed = _changed(chosen[at], kind, context, chooser)
            if changed is None:
                continue
            wrong[at], inner = changed
        shift = len(" ".join([*wrong[:at], ""]))
        span = (shift + inner[0], shift + inner[1])
        found.append(Answer(GROUP, "", context, " ".join(chosen), False, ()))
        found.append(Answer(GROUP, "", context, " ".join(wrong), True, (span,)))
    return found


def _sentences(context: str) -> list[str]:
    found = _SENTENCE.split(_GAP.sub(" ", context))
    return [text for text in found if 40 < len(text) < 300 and text[-1:] == "."]


def _changed(
    text: str, kind: str, context: str, chooser: random.Random
) -> tuple[str, tuple[int, int]] | None:
    if kind == "negation":
        places = [*_NOT.finditer(text)] or [*_VERB.finditer(text)]
        if not places:
            return None
        place = chooser.choice(places)
        new = place[1] if " not" in place.group() else f"{place[1]} not"
    else:
        pattern = _NUMBER if kind == "number" else _NAME
        places = list(pattern.finditer(text))
        if not places:
            return None
        place = chooser.choice(places)
        others = sorted({m.group() for m in pattern.finditer(context)} - {place.group()})
        near = kind == "number" and (not others or chooser.random() < 0.5)
        if near:
            new = _other_number(place.group(), chooser)
        elif others:
            new = chooser.choice(others)
        else:
            return None
        if new in text:
            return None
    whole = text[: place.start()] + new + text[place.end() :]
    return whole, (place.start(), place.start() + len(new))


def _other_number(text: str, chooser: random.Random) -> str:
    digits = [at for at, character in enumerate(text) if character.isdigit()]
    at = chooser.choice(digits)
    new = chooser.choice([d for d in "123456789" if d != text[at]])
    return text[:at] + new + text[at + 1 :]
