"""Our own path: documents are ingested, a turn makes the envelope, nothing is reached into."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from crp_integrations.bench.selection.axis import Axis
from crp_integrations.bench.selection.data import Collection
from crp_integrations.bench.selection.metrics import Packed
from crp_integrations.bench.selection.units import Unit
from crp_integrations.envelope.prompt import ELLIPSIS
from crp_integrations.envelope.records import Envelope, PackedFact
from crp_integrations.fabric.records import Document, source_id
from crp_integrations.loaders.text import paragraphs
from crp_integrations.ports import Embedder
from crp_integrations.relay.build import open_relay
from crp_integrations.relay.settings import load
from crp_integrations.seals import sha256

# Counts with o200k, as all the systems are counted.
MODEL = "gpt-4o"
# All facts are of one moment, so that no run depends on the day.
NOW = datetime(2026, 1, 1, tzinfo=UTC)
_OFFSETS = re.compile(r"(\d+)-(\d+)\Z")


class Ours:
    """A relay over a collection, in memory.

    Attributes:
        digest: of the settings in force.
        facts: how many facts the collection became.
        unplaced: ids of facts that were packed although no document holds their text.
    """

    def __init__(
        self, collection: Collection, axis: Axis, embedder: Embedder, settings: dict[str, Any]
    ) -> None:
        """Ingest the documents as text files would be.

        Args:
            settings: arguments of `relay.settings.load`, such as the preset.

        Raises:
            ConfigError: a setting is not usable.
        """
        self._axis = axis
        self._sources: dict[str, str] = {}
        self._units: dict[tuple[str, tuple[tuple[int, int], ...]], Unit] = {}
        self.unplaced: set[str] = set()
        chosen = load(**settings)
        self.digest = chosen.digest
        self._relay = open_relay(None, embedder=embedder, settings=chosen, clock=_Still())
        documents = []
        for one in collection.texts:
            uri = f"bench:{collection.name}/{one.doc_id}"
            self._sources[source_id(uri)] = one.doc_id
            documents.append(
                Document(
                    uri=uri,
                    title=one.title or one.doc_id,
                    blocks=tuple(paragraphs(one.text)),
                    document_hash=sha256(one.text),
                )
            )
        self._relay.ingest(documents)
        if chosen.fabric.maintain_on_open:
            # What opening a stored fabric does.
            self._relay.fabric.maintain(graph=False)
        self.facts = self._relay.fabric.size()

    def packs(self, question: str, budgets: Sequence[int]) -> dict[int, Packed]:
        """The context for each budget: the envelope that a model call would carry.

        Selection does not know the budget, so a turn selects once and packs again for each.
        """
        turn = self._relay.turn(question, model=MODEL)
        made = {}
        for budget in budgets:
            turn.request = turn.request.changed(budget_tokens=budget)
            made[budget] = self._packed(turn.preview())
        return made

    def conversation(self, questions: Sequence[str], budget: int) -> list[Envelope]:
        """The envelopes of questions that follow each other, each made with the one before."""
        made: list[Envelope] = []
        for question in questions:
            before = made[-1] if made else None
            turn = self._relay.turn(question, model=MODEL, budget_tokens=budget, previous=before)
            made.append(turn.preview())
        return made

    def close(self) -> None:
        """Release the store."""
        self._relay.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _packed(self, envelope: Envelope) -> Packed:
        best = sorted(envelope.facts, key=lambda fact: (-fact.composite_score, fact.fact_id))
        return Packed(
            tuple(self._unit(fact, envelope.text) for fact in envelope.facts),
            tuple(fact.fact_id for fact in best),
            envelope.token_count,
        )

    def _unit(self, fact: PackedFact, text: str) -> Unit:
        key = (fact.fact_id, fact.spans)
        unit = self._units.get(key)
        if unit is None:
            doc_id = self._sources.get(fact.source_id)
            said = _OFFSETS.search(fact.source_location)
            start, end = (int(said[1]), int(said[2])) if said else (0, 0)
            # A fact that is shown in part is placed part by part.
            pieces = fact.content.split(ELLIPSIS) if fact.spans else [fact.content]
            places = [self._axis.place(piece, doc_id, start, end) for piece in pieces]
            stretches = tuple(place for place in places if place is not None)
            if len(stretches) < len(pieces):
                stretches = ()
            unit = Unit(fact.fact_id, doc_id or "", fact.content, fact.token_count, stretches)
            self._units[key] = unit
        # What counts is what the model reads.
        if unit.stretches and fact.content in text:
            return unit
        self.unplaced.add(fact.fact_id)
        return Unit(unit.unit_id, unit.doc_id, unit.text, unit.tokens, ())


class _Still:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOW
