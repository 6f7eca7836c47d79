"""What one window leaves to the next: a value that a caller, and later a session, keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic import Field, TypeAdapter, model_validator

from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import QualityTier


class Seen(Part):
    """A fact that a window showed.

    Attributes:
        content_hash: `sha256:…` of the whole text of the fact, of which a part may have been shown;
            another text may be shown again.
    """

    fact_id: str
    content_hash: str


_SEEN: Final = TypeAdapter(tuple[Seen, ...])


def seen_facts(hashes: Iterable[tuple[str, str]]) -> tuple[Seen, ...]:
    """Facts by their ids and hashes, all at once: a window shows dozens."""
    return _SEEN.validate_python(
        tuple([{"fact_id": id_, "content_hash": hash_} for id_, hash_ in hashes])
    )


class PriorWindow(Record):
    """An earlier window of a session.

    Spec: CRP-SPEC-003 §14.1, §14.2

    Attributes:
        etag: of its envelope.
        facts_seen: everything that it showed, an earlier summary too.
        deferred: ids of relevant facts that did not fit, best first.
        summary: short account of its answer; empty for none.
        answer: its whole answer, for the analysis of the next one (CRP-SPEC-005 §8 to §11); empty
            for none, and then the summary stands for it. No envelope shows it.
        window_id: of the sealed window, empty when it is not known.
        quality_tier: tier of its envelope.
    """

    SCHEMA = "prior-window/1"

    window_number: int = Field(ge=1)
    etag: str
    facts_seen: tuple[Seen, ...]
    deferred: tuple[str, ...] = ()
    summary: str = ""
    answer: str = ""
    window_id: str = ""
    quality_tier: QualityTier

    @model_validator(mode="after")
    def _deferred_unseen(self) -> PriorWindow:
        both = {seen.fact_id for seen in self.facts_seen} & set(self.deferred)
        if both:
            raise ValueError(f"fact {min(both)} is both seen and deferred; it can be one of them")
        return self
