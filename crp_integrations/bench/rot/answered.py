"""Answers of a given model by where the gold passage stands and how long the context is.

The context is passages in a fixed order with the gold one at a depth (`placed`), or our envelope
over the same passages (`crp`). An answer is right when it says one of the known answers.
"""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.bench.rot.scenarios import Bench, Means, Point
from crp_integrations.bench.rot.systems import CRP
from crp_integrations.bench.selection.data import Collection
from crp_integrations.envelope.prompt import render
from crp_integrations.messages import Message, ModelCall
from crp_integrations.ports import Model

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
LENGTHS = (10, 30, 100)
MAX_TOKENS = 100
_ASK = (
    "Answer the question from the context alone, in a few words.\n\n{context}\n\nQuestion: {query}"
)


def answered(bench: Bench, model: Model, name: str) -> list[Point]:
    """The share of right answers by depth and length.

    Args:
        model: answers the calls.
        name: of the model, as the calls name it.

    Raises:
        ModelError: a call failed.
    """
    means = Means()
    for length in (length for length in LENGTHS if length <= len(bench.asked)):
        for collection, axis in bench.collections(length):
            ours = bench.open(CRP, collection, axis, {}) if CRP in bench.systems else None
            for question in collection.questions:
                contexts = [
                    ({"system": "placed", "passages": length, "depth": depth}, placed)
                    for depth in DEPTHS
                    for placed in [_placed(collection, question.evidence[0].doc_id, depth)]
                ]
                if ours is not None:
                    (text,) = ours.conversation([question.query], bench.budget)
                    contexts.append(({"system": CRP, "passages": length}, text))
                for at, context in contexts:
                    said = _ask(model, name, context, question.query)
                    tokens = bench.counter.count(context)
                    means.add(
                        at,
                        {
                            "right": float(bench.by_query[question.query].right(said)),
                            "tokens": tokens,
                        },
                    )
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


def by_length(points: Sequence[Point]) -> dict[int, list[Point]]:
    """The placed contexts' points by their number of passages, for a curve each."""
    found: dict[int, list[Point]] = {}
    for point in points:
        if point["system"] == "placed":
            found.setdefault(point["passages"], []).append(point)
    return found
