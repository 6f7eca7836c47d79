"""What an assembler is asked and gives: the request, the composed pack, its warnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.retriever_hits import RetrieverHit
from crp_integrations.given import of_kind
from crp_integrations.governance.packs import ContextPack, DropReport
from crp_integrations.governance.tools import ToolSelection, ToolSpec
from crp_integrations.records import Part, Record

WarningWord = Literal["stale", "low-confidence", "overflow", "minimal"]


class StateEntry(Part):
    """Something of the session that the model may need, such as an earlier answer.

    Attributes:
        source: id or URI of where it comes from; equal texts of one source are shown once.
    """

    text: str = Field(min_length=1)
    source: str = "session"


class AssembleRequest(Record):
    """What a pack is made for.

    Spec: Summit §Context Assembly Pipeline

    Attributes:
        message: what the user says; it is never cut.
        budget_tokens: of the whole pack as rendered.
        preamble: the operator's words before the message.
        state: of the session, most important first.
        task: the declared task and its instructions.
        policies: reminders of the active policies; none is left out.
        tools: the registry that tools are selected from.
        query: what is searched for; empty for the message.
        session_id: empty for none.
    """

    SCHEMA = "assemble-request/1"

    message: str = Field(min_length=1)
    budget_tokens: int = Field(ge=1)
    preamble: str = ""
    state: tuple[StateEntry, ...] = ()
    task: str = ""
    policies: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    query: str = ""
    session_id: str = ""


def asked_for(request: AssembleRequest) -> AssembleRequest:
    """What a pack is to be made for.

    Raises:
        RequestError: it is something else, such as the question alone.
    """
    return of_kind(
        request,
        AssembleRequest,
        "request",
        "an AssembleRequest, such as AssembleRequest(message=question, budget_tokens=8000)",
    )


class Warned(Part):
    """Something that whoever uses a pack should know.

    Attributes:
        item_id: empty where it is about the whole pack.
    """

    word: WarningWord
    reason: str
    item_id: str = ""


@dataclass(frozen=True, slots=True)
class Composed:
    """A pack with everything behind it.

    Attributes:
        pack: the wire view.
        envelope: what it is the view of; its text is what a model is shown.
        texts: what the pack's items refer to, by reference.
        drop_reports: one a reason; together they name everything that was left out.
        evidence: every retriever's word on each fact that is shown, by item id.
        tools: which tools were chosen and which had no use; None where there is no registry.
        minimal: the pack holds nothing but message and policies, or no fact.
    """

    pack: ContextPack
    envelope: Envelope
    texts: Mapping[str, str]
    drop_reports: tuple[DropReport, ...]
    evidence: Mapping[str, tuple[RetrieverHit, ...]]
    warnings: tuple[Warned, ...] = ()
    tools: ToolSelection | None = None
    minimal: bool = False

    @property
    def text(self) -> str:
        """What a model is shown."""
        return self.envelope.text
