"""Changing one stored fact in place: its id stays, what it says may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import ValidationError

from crp_integrations.errors import EngineError, FactRejected
from crp_integrations.fabric.life.lifecycle import check, check_content, check_validity, outlived
from crp_integrations.fabric.life.writing import Writing, with_own_hash
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Fact, Notice
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.vectors import FloatRows, unit_rows
from crp_integrations.vocabulary import EventType, FactStatus


class Keep(Enum):
    """The argument that leaves a field as it is, where None means to empty it."""

    KEEP = "keep"


KEEP = Keep.KEEP


@dataclass(frozen=True, slots=True)
class Updating:
    """Changes facts of one namespace, on behalf of one subject."""

    writing: Writing
    embedder: Embedder
    counter: TokenCounter

    def update(self, fact_id: str, given: Mapping[str, Any]) -> Fact:
        """Change some fields of a fact.

        Spec: CRP-SPEC-009 §2, §3.3 (decision E18)

        The new vector is made before the transaction. In it the fact is read once more and the
        fields are put on what is stored then, so that nothing another writer did is undone.

        Args:
            fact_id: of an ACTIVE or STALE fact.
            given: the new values by field name.

        Returns:
            The fact as it is stored now.
        """
        writing, now = self.writing, self.writing.clock.now()
        with writing.begin(False) as transaction:
            writing.check(transaction.facts)
            seen, wanted = self._wanted(transaction.facts, fact_id, given, now)
            if wanted == seen:
                return seen
        row = None
        if "content" in given:
            self._check_length(fact_id, wanted.content)
            writing.check_shared([wanted], [seen])
            with writing.tracer.step("fabric.embed"):
                row = self._vector(wanted.content)
        key = writing.key()
        with writing.tracer.step("fabric.update"), writing.begin(True) as transaction:
            facts = transaction.facts
            writing.check(facts)
            stored, wanted = self._wanted(facts, fact_id, given, now)
            if wanted == stored:
                return stored
            before = writing.hash_in(facts)
            wanted = wanted.changed(modified_at=now)
            said = wanted.content_hash != stored.content_hash
            facts.replace([wanted], row if said else None)
            self._tell_source(facts, wanted.source_id)
            data = {
                "source": wanted.source_id,
                "facts": [],
                "changed": [fact_id],
                "fields": sorted(given),
                "content_hash": wanted.content_hash,
            }
            writing.tell(
                transaction,
                [(EventType.FACT_INGESTED, data)],
                before=before,
                cause="updated",
                now=now,
                key=key,
            )
            # As it reads back: a store may write some values in one form of several.
            (kept,) = facts.get([fact_id])
        if said:
            writing.notify(
                Notice(
                    kind="source-changed",
                    namespace=writing.namespace,
                    source_id=kept.source_id,
                    facts=(fact_id,),
                )
            )
        return kept

    # --- within ------------------------------------------------------------------------

    def _wanted(
        self, facts: FactsFacet, fact_id: str, given: Mapping[str, Any], now: datetime
    ) -> tuple[Fact, Fact]:
        """The fact as it is stored, and as it is to be.

        Raises:
            IllegalTransition: it is DELETED or QUARANTINED.
            FactRejected: a value is not usable.
        """
        (stored,) = self.writing.found(facts, [fact_id], "write")
        check_content(stored)
        try:
            wanted = stored.changed(**given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(part) for part in first["loc"]) or "fact"
            raise FactRejected(f"fact {fact_id} cannot have this {field}: {first['msg']}") from None
        check_validity(wanted)
        if wanted.labels != stored.labels:
            self.writing.require("write", wanted.labels)
        if "content" in given:
            # The source says it again. Its time may be over all the same (§8.1).
            if stored.status is FactStatus.STALE and not outlived(wanted, now):
                check([stored], FactStatus.ACTIVE)
                wanted = wanted.changed(status=FactStatus.ACTIVE)
            wanted = wanted.changed(archived_at=None)
        return stored, wanted

    def _check_length(self, fact_id: str, content: str) -> None:
        settings = self.writing.settings.chunking
        tokens = self.counter.count(content)
        if not settings.min_fact_tokens <= tokens <= settings.max_fact_tokens:
            raise FactRejected(
                f"fact {fact_id} would have {tokens} tokens, wanted {settings.min_fact_tokens} "
                f"to {settings.max_fact_tokens}; longer text is ingested as a document"
            )

    def _vector(self, content: str) -> FloatRows:
        row = unit_rows(
            self.embedder.embed_passages([content]), dimensions=self.embedder.dimensions
        )
        if len(row) != 1:
            raise EngineError(
                f"embedder {self.embedder.identity!r} gave {len(row)} vectors for 1 text",
                engine=self.embedder.identity,
            )
        return row

    def _tell_source(self, facts: FactsFacet, source_id: str) -> None:
        source = facts.source(source_id)
        if source is not None:
            own = with_own_hash(facts, source)
            if own != source:
                facts.add_source(own)
