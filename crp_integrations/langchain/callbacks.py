"""A callback that examines every answer against the documents that its own chain retrieved."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from crp_integrations.dpe.records import Report
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.langchain.ancestry import Retrieved
from crp_integrations.langchain.documents import METADATA_KEY, facts_of
from crp_integrations.langchain.listening import Listening
from crp_integrations.relay.doors import examine
from crp_integrations.vocabulary import Checked, GroundingMode, HaltReason, RiskLevel

log = logging.getLogger("crp_integrations.langchain")

Attachment = dict[str, Any]


class DPECallbackHandler(Listening):
    """Records and attaches; unless told to, it never stops an answer.

    Spec: CRP-SPEC-005 §2

    The report stands as plain JSON in `response_metadata["crp"]` of each answer's message (in
    `generation_info["crp"]` for models that return strings). A call whose chain retrieved
    nothing, or whose examination failed, gets `{"checked": "NOT_CHECKED", "reason": …}`
    instead, never a clean report. In `stream()` the pieces are out before a callback sees the
    end: use `on_report` there, and `CRPGate` or `CRPMiddleware` where an answer must be withheld.

    Args:
        on_critical: `record`, or `raise` to end the call with `SafetyHalt` where an answer's risk
            is CRITICAL; who streams has the tokens by then.
        grounding: how far the chain's prompt lets the model go beyond the context.
        on_report: called with what was attached, once for each answer.

    Raises:
        RequestError: the grounding mode is not one of the three, or `on_critical` neither of two.
    """

    def __init__(
        self,
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        on_report: Callable[[Attachment], None] | None = None,
        on_critical: Literal["record", "raise"] = "record",
    ) -> None:
        super().__init__()
        if grounding not in tuple(GroundingMode):
            wanted = ", ".join(GroundingMode)
            raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}")
        if on_critical not in ("record", "raise"):
            raise RequestError(f"on_critical {on_critical!r:.40} is neither record nor raise")
        self._grounding = GroundingMode(grounding)
        self._on_report = on_report
        # LangChain swallows what a handler raises, unless it says this of itself.
        self.raise_error = on_critical == "raise"

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Examine each answer and attach the report.

        Raises:
            SafetyHalt: an answer's risk is CRITICAL and `on_critical` is `raise`.
        """
        context = self._runs.context_of(run_id)
        attached: list[Attachment] = []
        critical: Report | None = None
        try:
            for generations in response.generations:
                for generation in generations:
                    if isinstance(generation, Generation) and generation.text:
                        found = self._examined(generation.text, context)
                        if isinstance(found, Report):
                            if found.risk_level is RiskLevel.CRITICAL:
                                critical = critical or found
                            found = found.model_dump(mode="json")
                        attached.append(found)
                        _attach(generation, found)
            # Only now, so that a hook that raises leaves no answer without its report.
            if self._on_report is not None:
                for attachment in attached:
                    self._on_report(attachment)
        finally:
            self._runs.end(run_id)
        if critical is not None and self.raise_error:
            raise SafetyHalt(
                "an answer was withheld: its risk is CRITICAL",
                report=critical,
                reason=HaltReason.CRITICAL_RISK.value,
            )

    def _examined(self, answer: str, context: tuple[Retrieved, ...] | None) -> Report | Attachment:
        if context is None:
            return _not_checked("no retriever ran in the chain of this call")
        documents = [document for retrieved in context for document in retrieved.documents]
        try:
            facts: list[Fact] = facts_of(documents)[0]
            return examine(
                answer,
                context=facts,
                question=next(iter(context)).query,
                grounding=self._grounding,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes NOT_CHECKED
            # LangChain would swallow it; the answer must say that it was not checked. The
            # error's own words may quote a text, which no log may hold.
            log.error("the examination of an answer failed with %s", type(error).__name__)
            return _not_checked(f"the examination failed with {type(error).__name__}")


def _attach(generation: Generation, attachment: Attachment) -> None:
    # A new dict each time: answers out of a cache share theirs with the answers before them.
    if isinstance(generation, ChatGeneration):
        message = generation.message
        message.response_metadata = {**message.response_metadata, METADATA_KEY: attachment}
    else:
        generation.generation_info = {
            **(generation.generation_info or {}),
            METADATA_KEY: attachment,
        }


def _not_checked(reason: str) -> Attachment:
    return {"checked": Checked.NOT_CHECKED.value, "reason": reason}
