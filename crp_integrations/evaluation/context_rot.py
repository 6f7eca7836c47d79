"""Measures how contexts degrade as they grow: the answers in them, and a model's replies.

A file is gzip JSON lines of `query, answers: [text], title, passage`, UTF-8. The passages of other
questions are the distractors of a question. Other systems can be passed in for comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Protocol

from crp_integrations.engines.models import Models
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.tokens import counter_for
from crp_integrations.engines.vector_cache import CachedEmbedder, VectorCache
from crp_integrations.envelope.prompt import render
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.context_metrics import MeasuredContext, TextAxis, WantedEvidence
from crp_integrations.evaluation.data_sets import (
    Collection,
    EvidenceSpan,
    SetDocument,
    SetQuestion,
    each,
)
from crp_integrations.evaluation.selection import MODEL, RelayContexts, Say
from crp_integrations.messages import Message, ModelCall
from crp_integrations.ports import Embedder, Model, TokenCounter

CRP: Final = "crp"
SIZES: Final = (10, 100, 1_000)
QUESTIONS: Final = 100
BUDGET: Final = 2_048
BUDGETS: Final = (256, 1_024, 4_096, 16_384)
DEPTHS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
LENGTHS: Final = (10, 30, 100)
# Number of passages of a store where another parameter varies.
PASSAGES: Final = 100
MAX_TOKENS: Final = 100
TIMEOUT_S: Final = 60.0
_ASK: Final = (
    "Answer the question from the context alone, in a few words.\n\n{context}\n\nQuestion: {query}"
)
Point = dict[str, Any]
FORM: Final = "query, answers (a list of texts), title and passage"


@dataclass(frozen=True, slots=True)
class RotQuestion:
    """A question with its answers and the passage that contains one.

    Attributes:
        answers: alternative right answers.
        passage: the text in which at least one of them occurs.
    """

    query: str
    answers: tuple[str, ...]
    title: str
    passage: str

    def right(self, reply: str) -> bool:
        """Whether a reply contains one of the answers, ignoring case and white space."""
        text = _plain(reply)
        return any(_plain(answer) in text for answer in self.answers)


def find_questions(data: Path) -> list[Path]:
    """Files of questions: `data` itself, those in it, or those in its folder `rot`."""
    if data.is_file():
        return [data]
    for folder in (data, data / "rot"):
        if paths := sorted(folder.glob("*.jsonl.gz")):
            return paths
    raise RequestError(
        f"--data is {str(data)!r:.120}, wanted a file of {FORM}, or a folder with such *.jsonl.gz"
    )


def read_questions(path: Path) -> list[RotQuestion]:
    """The questions of a file whose passage contains an answer, one for each passage."""
    questions: dict[str, RotQuestion] = {}
    for question in each(path, FORM, question_in):
        if question.right(question.passage):
            questions.setdefault(question.passage, question)
    if not questions:
        raise RequestError(f"{path} has no question whose passage contains an answer")
    return list(questions.values())


def question_in(row: dict[str, Any]) -> RotQuestion:
    """The question of a row."""
    return RotQuestion(
        _text(row["query"]),
        tuple(_text(answer) for answer in _list(row["answers"])),
        str(row.get("title") or ""),
        _text(row["passage"]),
    )


def collections(asked: Sequence[RotQuestion], size: int, questions: int) -> Iterator[Collection]:
    """Collections of `size` passages, each a distractor for the questions of the others.

    A question is left out of a collection in which another passage also contains its answer.
    """
    groups = [asked[first : first + size] for first in range(0, len(asked) - size + 1, size)]
    left = questions
    for number, group in enumerate(groups):
        texts = tuple(
            SetDocument(f"p{place}", question.title, question.passage)
            for place, question in enumerate(group)
        )
        fair = [place for place, question in enumerate(group) if _alone(question, group)]
        share = min(len(fair), -(-left // (len(groups) - number)))
        taken = [fair[place * len(fair) // share] for place in range(share)]
        left -= share
        if taken:
            yield Collection(
                f"{size}/{number}",
                texts,
                tuple(
                    SetQuestion(
                        str(place),
                        group[place].query,
                        (EvidenceSpan(f"p{place}", 0, len(group[place].passage)),),
                    )
                    for place in taken
                ),
            )


def _alone(text: RotQuestion, group: Sequence[RotQuestion]) -> bool:
    return not any(other is not text and text.right(other.passage) for other in group)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("not a string, or blank")
    return value


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


class RotSystem(Protocol):
    """Makes the context for a question from one collection."""

    def pack(self, question: str, budget: int, k: int | None = None) -> MeasuredContext:
        """The context of at most `budget` tokens; `k` is the number of passages to retrieve."""
        ...

    def conversation(self, questions: Sequence[str], budget: int) -> list[str]:
        """The rendered contexts of consecutive questions."""
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


RotOpener = Callable[[Collection, TextAxis, Embedder, TokenCounter], RotSystem]


@dataclass(frozen=True)
class RotPlan:
    """The parameters of a measurement.

    Attributes:
        questions: maximum number of questions for each point.
        sizes: numbers of passages of the stores.
        budgets: tokens of the contexts for each store.
        budget: tokens of a context where another parameter varies.
        systems: `crp` and names of `openers`.
        missing: filled with each system that is not installed, and the reason.
    """

    asked: Sequence[RotQuestion]
    embedder: Embedder
    counter: TokenCounter
    questions: int = QUESTIONS
    sizes: Sequence[int] = SIZES
    budgets: Sequence[int] = BUDGETS
    budget: int = BUDGET
    systems: Sequence[str] = (CRP,)
    openers: Mapping[str, RotOpener] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    @cached_property
    def by_query(self) -> dict[str, RotQuestion]:
        """The questions by their text."""
        return {question.query: question for question in self.asked}

    def found(
        self, question: SetQuestion, axis: TextAxis, packed: MeasuredContext
    ) -> dict[str, float]:
        """Whether and where a context contains the answer to a question.

        `answer` is 1 if it contains a known answer, `gold` if it contains the whole passage;
        `place` is the position of the passage (0 the start, 1 the end).
        """
        wanted = WantedEvidence(question, axis)
        _, whole = wanted.found(packed.units)
        return {
            "answer": float(
                self.by_query[question.query].right("\n".join(unit.text for unit in packed.units))
            ),
            "gold": float(whole),
            "place": _place(wanted, packed),
            "tokens": packed.tokens,
        }

    def collections(self, size: int = PASSAGES) -> Iterator[tuple[Collection, TextAxis]]:
        """Collections of `size` passages, or of all passages if there are fewer."""
        for collection in collections(self.asked, min(size, len(self.asked)), self.questions):
            yield collection, TextAxis(collection.texts)

    def open(
        self,
        name: str,
        collection: Collection,
        axis: TextAxis,
        settings: Mapping[str, Any] | None = None,
    ) -> RotSystem | None:
        """A system over a collection; None if its library is not installed."""
        opener = self.openers.get(name)
        if opener is None:
            return RelayContexts(collection, axis, self.embedder, settings or {})
        try:
            return opener(collection, axis, self.embedder, self.counter)
        except ImportError as error:
            self.missing[name] = f"{error.name or error} is not installed"
            return None


@dataclass
class PointMeans:
    """Values by point, in order of first occurrence."""

    values: dict[tuple[tuple[str, Any], ...], dict[str, list[float]]] = field(default_factory=dict)

    def add(self, at: Mapping[str, Any], values: Mapping[str, float]) -> None:
        """Add the values of one question; NaN is ignored."""
        by_name = self.values.setdefault(tuple(at.items()), {})
        for name, value in values.items():
            by_name.setdefault(name, [])
            if not math.isnan(value):
                by_name[name].append(value)

    def points(self) -> list[Point]:
        """The mean values of each point, with the largest number of questions of a metric."""
        return [
            {
                **dict(at),
                "questions": max(map(len, values.values()), default=0),
                **{name: round(fmean(numbers), 4) for name, numbers in values.items() if numbers},
            }
            for at, values in self.values.items()
        ]


def _place(wanted: WantedEvidence, packed: MeasuredContext) -> float:
    """The position of the middle of the first hit, as a share of tokens; NaN without a hit."""
    total = sum(unit.tokens for unit in packed.units)
    before = 0.0
    for unit in packed.units:
        if wanted.is_hit(unit):
            return (before + unit.tokens / 2) / total
        before += unit.tokens
    return math.nan


def distractors(plan: RotPlan) -> list[Point]:
    """The evidence found among more and more passages, at each budget."""
    means = PointMeans()
    for size in plan.sizes:
        for collection, axis in plan.collections(size):
            for name in plan.systems:
                system = plan.open(name, collection, axis)
                if system is None:
                    continue
                for question in collection.questions:
                    for budget in plan.budgets:
                        packed = system.pack(question.query, budget)
                        at = {"system": name, "passages": len(collection.texts), "budget": budget}
                        means.add(at, plan.found(question, axis, packed))
                system.close()
    return means.points()


def answered(plan: RotPlan, model: Model, name: str) -> list[Point]:
    """The share of a model's right answers, by number of passages and place of the gold passage.

    The context is passages in a fixed order with the gold passage at a depth (`placed`), or our
    envelope of the same passages (`crp`).
    """
    means = PointMeans()
    for length in (length for length in LENGTHS if length <= len(plan.asked)):
        for collection, axis in plan.collections(length):
            ours = plan.open(CRP, collection, axis) if CRP in plan.systems else None
            for question in collection.questions:
                contexts: list[tuple[Point, str]] = [
                    (
                        {"system": "placed", "passages": length, "depth": depth},
                        _placed(collection, question.evidence[0].doc_id, depth),
                    )
                    for depth in DEPTHS
                ]
                if ours is not None:
                    (text,) = ours.conversation([question.query], plan.budget)
                    contexts.append(({"system": CRP, "passages": length}, text))
                for at, context in contexts:
                    reply = _ask(model, name, context, question.query)
                    right = float(plan.by_query[question.query].right(reply))
                    means.add(at, {"right": right, "tokens": plan.counter.count(context)})
            if ours is not None:
                ours.close()
    return means.points()


def _placed(collection: Collection, gold: str, depth: float) -> str:
    others = [text.text for text in collection.texts if text.doc_id != gold]
    (own,) = (text.text for text in collection.texts if text.doc_id == gold)
    at = round(depth * len(others))
    return render([*others[:at], own, *others[at:]])


def _ask(model: Model, name: str, context: str, query: str) -> str:
    messages = (Message(role="user", content=_ASK.format(context=context, query=query)),)
    call = ModelCall(model=name, messages=messages, temperature=0.0, max_tokens=MAX_TOKENS)
    return model.call(call).text


def measure_rot(
    path: Path,
    *,
    questions: int = QUESTIONS,
    sizes: Sequence[int] = SIZES,
    budgets: Sequence[int] = BUDGETS,
    budget: int = BUDGET,
    model: str = "",
    cache: Path | None = None,
    embedder: Embedder | None = None,
    models: Model | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """The curves of a file of questions."""
    vectors = CachedEmbedder(embedder or OnnxEmbedder(), VectorCache(folder=cache))
    counter = counter_for(MODEL)
    plan = RotPlan(read_questions(path), vectors, counter, questions, sizes, budgets, budget)
    results: dict[str, list[Point]] = {}
    say("distractors")
    results["distractors"] = distractors(plan)
    if model:
        say("answered")
        results["answered"] = answered(plan, models or Models(timeout_s=TIMEOUT_S), model)
    return {
        "results": results,
        "settings": {
            "questions": path.name.split(".")[0],
            "passages": len(plan.asked),
            "at_most": questions,
            "tokenizer": counter.identity,
            "embedder": vectors.identity,
            "model": model,
            "budget": budget,
        },
    }
