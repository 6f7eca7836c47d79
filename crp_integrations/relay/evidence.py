"""What an answer is judged against: one function for every door.

Evidence is the packed context, what tools answered in the conversation, facts that earlier windows
of the session showed, and facts that the caller gave. What a model said earlier is none: neither
an answer of its own nor a summary of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.dpe.rejections import without_rejected
from crp_integrations.envelope.continuation import is_summary, seen_hashes
from crp_integrations.envelope.records import Envelope, PackedFact, PriorWindow
from crp_integrations.errors import RequestError, StoreError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Fact
from crp_integrations.fabric.view import FabricView
from crp_integrations.messages import Message
from crp_integrations.seals import sha256
from crp_integrations.vectors import FloatRows

# Source of what a tool answered, before the tool's name.
TOOL_SOURCE: Final = "tool:"
# Facts of earlier windows, at most; the last ones that were shown.
MOST_EARLIER: Final = 200
# What a tool's result weighs for omissions: nobody said that it is important.
UNWEIGHTED: Final = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """Passages that an answer is judged against.

    Attributes:
        passages: id and text of each, in the order in which the model saw them. A tool's result is
            named `tool:NAME#N`; what a model said earlier has its place and no text.
        importances: of each passage, [0, 1]; empty when they are not known.
        whole: ids whose text is a stored fact's whole text, so that its vector is at hand.
        sources: source of each earlier fact by its id, for its erasure.
        labels: access labels of each earlier fact by its id.
        rejected: claims that sub-agents' reports flag; no tool's result here states them.
    """

    passages: tuple[tuple[str, str], ...]
    importances: tuple[float, ...] = ()
    whole: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rejected: tuple[RejectedClaim, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the passages, in order."""
        return tuple([name for name, _ in self.passages])


def evidence_of(
    context: Envelope | Sequence[PackedFact | Fact | str] | None,
    messages: Sequence[Message] = (),
    earlier: Sequence[Fact] = (),
    rejected: Sequence[RejectedClaim] = (),
) -> Evidence:
    """The evidence for an answer.

    Args:
        context: an envelope, or facts and texts; texts are named `context-1`, `context-2`, ….
        messages: the conversation, of which tools' results count and nothing else.
        earlier: facts that earlier windows of the session showed.
        rejected: claims that sub-agents' reports flag; a tool's result is no evidence for one.
    """
    items: Sequence[PackedFact | Fact | str] = (
        () if context is None else context.facts if isinstance(context, Envelope) else context
    )
    passages = named_passages(items)
    weights = [one.importance_weight for one in items if not isinstance(one, str)]
    for place, one in enumerate(items):
        if not isinstance(one, str) and is_summary(one.source_id or ""):
            # Its place stays, so that citations by number mean what the model saw.
            passages[place] = (one.fact_id, "")
            if len(weights) == len(items):
                weights[place] = UNWEIGHTED
    known = {name for name, _ in passages}
    whole = frozenset(
        one.fact_id
        for one, (_, text) in zip(items, passages, strict=True)
        if isinstance(one, PackedFact) and text and not one.spans
    )
    before = [fact for fact in earlier if fact.fact_id not in known]
    results = [(name, without_rejected(text, rejected)) for name, text in tool_results(messages)]
    weighted = len(weights) == len(passages)
    further = [fact.importance_weight for fact in before] + [UNWEIGHTED] * len(results)
    return Evidence(
        (*passages, *((fact.fact_id, fact.content) for fact in before), *results),
        (*weights, *further) if weighted and passages else (),
        whole | {fact.fact_id for fact in before},
        {fact.fact_id: fact.source_id for fact in before},
        {fact.fact_id: tuple(fact.labels) for fact in before},
        tuple(rejected),
    )


def tool_results(messages: Iterable[Message]) -> tuple[tuple[str, str], ...]:
    """Name and text of what tools answered in a conversation, in order.

    >>> tool_results([Message(role="tool", name="fares", content="Lunch costs 12 euros.")])
    (('tool:fares#1', 'Lunch costs 12 euros.'),)
    """
    called: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for message in messages:
        called |= {call.id: call.name for call in message.tool_calls}
        if message.role == "tool" and message.content.strip():
            name = message.name or called.get(message.tool_call_id or "", "") or "result"
            found.append((f"{TOOL_SOURCE}{name}#{len(found) + 1}", readable(message.content)))
    return tuple(found)


def readable(text: str) -> str:
    """A text in which what no store and no hash can hold, a NUL or a lone surrogate, is U+FFFD."""
    return _UNREADABLE.sub("\ufffd", text)


_UNREADABLE: Final = re.compile("[\x00\ud800-\udfff]")


def earlier_facts(namespace: Namespace, prior: Sequence[PriorWindow]) -> list[Fact]:
    """Facts that earlier windows showed and that say today what they said then."""
    shown = seen_hashes(prior)
    ids = list(shown)[-MOST_EARLIER:]
    if not ids:
        return []
    return [one for one in namespace.facts(ids) if sha256(one.content) == shown[one.fact_id]]


def evidence_vectors(evidence: Evidence, view: FabricView) -> FloatRows | None:
    """Unit rows of the passages in their order, shape (passages, dimensions)."""
    # What is in no store has no vector yet, and a part of a fact is not all it says.
    made = [(name, text) for name, text in evidence.passages if text and name not in evidence.whole]
    stored = [name for name in evidence.ids if name in evidence.whole]
    try:
        rows = view.vectors(stored)
    except StoreError:
        return None
    if len(stored) == len(evidence.passages):
        return rows
    new = view.embedder.embed_passages([text for _, text in made])
    ids = [*stored, *(name for name, _ in made)]
    row = dict(zip(ids, [*rows, *new], strict=True))
    nothing = np.zeros(view.embedder.dimensions, dtype=np.float32)
    return np.stack([row.get(name, nothing) for name in evidence.ids])


def named_passages(items: Sequence[PackedFact | Fact | str]) -> list[tuple[str, str]]:
    """Ids and texts of what the model had; texts are named `context-1`, `context-2`, …."""
    passages = []
    for number, item in enumerate(items, 1):
        if isinstance(item, str):
            passages.append((f"context-{number}", item))
        elif isinstance(item, Fact | PackedFact):
            passages.append((item.fact_id, item.content))
        else:
            raise RequestError(f"context {number} is {type(item).__name__}, wanted a text or fact")
    return passages
