"""A callback that examines every answer against the documents that its own chain retrieved."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, Unpack
from uuid import UUID

from langchain_core.callbacks.manager import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from crp_integrations.adapters.arguments import (
    check_callables,
    check_relay,
    judge_for,
    late_report_hook,
)
from crp_integrations.adapters.observed_answers import (
    AnswerExaminer,
    Attach,
    Attachment,
    Examination,
    attachment_of,
    check_attach,
    critical_risk,
    not_checked,
    was_examined,
)
from crp_integrations.dpe.records import RejectedClaim, Report
from crp_integrations.dpe.rejections import rejected_claims, unique_claims
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.langchain.messages import (
    METADATA_KEY,
    RECEIPT_KEY,
    facts_of,
    structured_text,
)
from crp_integrations.langchain.runs import (
    MOST_TREES,
    RetrieverResult,
    RunTreeHandler,
    Sent,
    SentMessages,
    agent_depth,
    at_end_of,
    hold_outside,
    leave_to_window,
)
from crp_integrations.messages import Message
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.evidence import has_evidence
from crp_integrations.relay.examination import grounding_mode
from crp_integrations.relay.judge import JUDGING, JudgeChoices, JudgeSource
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary.context import GroundingMode
from crp_integrations.vocabulary.provenance import RiskLevel

log = logging.getLogger("crp_integrations.langchain")


# Among a call's options where LangChain makes an object of the answer.
_STRUCTURED: Final = "ls_structured_output_format"


@dataclass(frozen=True, slots=True)
class _Step:
    """The answers of one model call, with what was retrieved and sent for it."""

    run_id: UUID
    answers: Sequence[Generation]
    context: tuple[RetrieverResult, ...] | None
    sent: Sent
    rejected: tuple[RejectedClaim, ...]


class DPECallbackHandler(RunTreeHandler):
    """Examines every answer and attaches the report; it stops none unless you ask for it.

    Spec: CRP-SPEC-005 §2

    A summary of the report stands as plain JSON in `response_metadata["crp"]` of each answer's
    message (in `generation_info["crp"]` for models that return strings). Evidence is what
    retrievers of the chain returned, what tools answered, and what the application wrote into the
    system prompt. A call that had none of these, or whose examination failed, gets the level
    UNKNOWN, and `reasons` say why. A stream's pieces are out before a callback sees the end: use
    `CRPGate` or `CRPMiddleware` to withhold an answer. Within `CRPMiddleware` the handler gets the
    sealed report.

    Tracers among the callbacks see an answer once it has its report: the first handler made wraps
    LangChain's `on_llm_end` of a model call's run managers.

    Attributes:
        last_report: the last answer's whole report; None before the first answer.

    Args:
        on_critical: `record`, or `raise` to end the call with `SafetyHalt` where an answer's risk
            is CRITICAL, or its judge failed and `judge_failure` is `halt`.
        on_report: called with each answer's whole report as plain JSON; with a judge in
            `background` mode once that has spoken.
        attach: how much is attached: `full`, `summary` (at most 1,024 bytes), or `id`.
        relay: examines by its own engines and seals each answer as a window of its store.
        on_receipt: called with the receipt on each sealed answer. Nobody else keeps one with texts
            that are not in the relay's fabric.
        judge, judge_options: as in `examine`; None for the relay's judge, or that of the settings.

    Raises:
        RequestError: an argument has no usable value, or the judge is True.
        ConfigError: what is given as a judge is no model.
    """

    def __init__(
        self,
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        on_report: Callable[[Attachment], None] | None = None,
        attach: Attach = "summary",
        on_critical: Literal["record", "raise"] = "record",
        relay: Relay | None = None,
        on_receipt: Callable[[Receipt], None] | None = None,
        judge: JudgeSource = None,
        **judge_options: Unpack[JudgeChoices],
    ) -> None:
        super().__init__()
        _examine_first()
        if on_critical not in ("record", "raise"):
            raise RequestError(f"on_critical {on_critical!r:.40} is neither record nor raise")
        if relay is not None:
            check_relay(relay, "DPECallbackHandler")
        # LangChain swallows what a handler raises: nobody would be told, and see why.
        check_callables(on_report=on_report, on_receipt=on_receipt)
        check_attach(attach)
        self._attach = attach
        self._on_report = on_report
        self._relay = relay
        self._on_receipt = on_receipt
        self._judge = judge_for(
            "DPECallbackHandler",
            judge,
            judge_options,
            relay=relay,
            reports_itself=on_report is not None,
        )
        self._on_judged = late_report_hook(self._judge, on_report, _attachment)
        self._examiner = AnswerExaminer(grounding_mode(grounding), relay, self._judge, log)
        self._sent = SentMessages()
        # Calls of tools without a word, by the run around them.
        self._steps: OrderedDict[UUID, _Step] = OrderedDict()
        self.last_report: Attachment | None = None
        # LangChain swallows what a handler raises, unless it says this of itself.
        self.raise_error = on_critical == "raise"

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run's parent, what is sent, and whether a structured answer is asked for."""
        self._runs.start(run_id, parent_run_id)
        self._sent.note(run_id, messages, structured=_STRUCTURED in (kwargs.get("options") or {}))

    def on_llm_end(
        self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Examine each answer and attach the report.

        Raises:
            SafetyHalt: an answer's risk is CRITICAL, or its judge failed and that halts, and
                `on_critical` is `raise`.
        """
        sent = self._sent.pop(run_id)
        if JUDGING.get() or leave_to_window(self):
            # A judge's reply is not an answer, and a window's answer gets the sealed report.
            self._runs.end(run_id)
            return
        context = self._runs.context_of(run_id)
        rejected = self._runs.rejected_of(run_id)
        generations = [generation for batch in response.generations for generation in batch]
        answers = [
            generation
            for generation in generations
            if sent.structured or not _only_calls(generation)
        ]
        if generations and not answers and parent_run_id is not None:
            # A message that only calls tools is a step, unless its agent says that it has answered.
            self._steps[parent_run_id] = _Step(run_id, generations, context, sent, rejected)
            while len(self._steps) > MOST_TREES:
                self._steps.popitem(last=False)
        self._conclude(_Step(run_id, answers, context, sent, rejected))

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Examine what an agent's model called as its structured answer; forget an ended tree.

        Raises:
            SafetyHalt: as for any answer.
        """
        step = self._steps.pop(run_id, None)
        try:
            if step is not None and _has_structured_response(outputs):
                self._conclude(step)
        finally:
            super().on_chain_end(outputs, run_id=run_id, **kwargs)

    def _conclude(self, step: _Step) -> None:
        """Examine the answers of a model call, attach the reports and hand them on."""
        run_id = step.run_id
        whole: list[Attachment] = []
        receipts: list[Receipt] = []
        halted: SafetyHalt | None = None
        try:
            for generation in step.answers:
                report, receipt, halt = self._examined(generation, step)
                self._reject(run_id, report)
                if report.risk_level is RiskLevel.CRITICAL:
                    halt = halt or critical_risk(report)
                # The other reports are handed on by the judge in the background.
                if self._on_judged is None or not was_examined(report):
                    whole.append(_attachment(report))
                halted = halted or halt
                attached = attachment_of(report, self._attach)
                _attach(generation, attached, receipt.receipt_id if receipt else "")
                receipts += [receipt] if receipt else []
            # Only now, so that a hook that raises leaves no answer without its report.
            self.last_report = whole[-1] if whole else self.last_report
            if self._on_report is not None:
                for attachment in whole:
                    self._on_report(attachment)
            if self._on_receipt is not None:
                for receipt in receipts:
                    self._on_receipt(receipt)
        finally:
            self._runs.end(run_id)
        if halted is not None and self.raise_error:
            raise halted

    def take(self, report: Report) -> None:
        """Take the report of a window that was examined and sealed around the model call.

        Raises:
            SafetyHalt: its risk is CRITICAL, and `on_critical` is `raise`.
        """
        self.last_report = _attachment(report)
        if self._on_report is not None:
            self._on_report(self.last_report)
        if report.risk_level is RiskLevel.CRITICAL and self.raise_error:
            raise critical_risk(report)

    def _reject(self, run_id: UUID, report: Report) -> None:
        """Give flagged claims to the agent whose tool call this is."""
        self._runs.reject(run_id, rejected_claims(report))
        hold_outside(None, report)

    def _examined(self, generation: Generation, step: _Step) -> Examination:
        context, sent = step.context, step.sent
        answer = _answer(generation)
        if not answer.strip():
            return not_checked("the answer has no text")
        if context is None and not has_evidence(sent.messages):
            return not_checked(
                "no retriever ran in the chain of this call, no tool answered, and the model was "
                "told nothing"
            )
        documents = [document for retrieved in context or () for document in retrieved.documents]
        return self._examiner.examine(
            answer,
            lambda: facts_of(documents)[0],
            context[0].query if context else _question(sent.messages),
            messages=sent.messages,
            rejected=unique_claims(sent.rejected, step.rejected),
            model=_model(generation),
            on_report=self._on_judged,
            depth=agent_depth(),
            turn=_turn(sent.messages),
        )


@cache
def _examine_first() -> None:
    """Let handlers that examine answers hear the end of a model call before all others.

    LangChain goes by the order in which handlers were given, and asynchronously by `run_inline`
    first; a tracer that is told first would write the answer down without its report.
    """
    whole, awhole = CallbackManagerForLLMRun.on_llm_end, AsyncCallbackManagerForLLMRun.on_llm_end

    def on_llm_end(self: Any, response: LLMResult, **kwargs: Any) -> None:
        first, others = _examiners_apart(self)
        try:
            with at_end_of(self):
                whole(first, response, **kwargs)
        finally:
            # Also where an answer is withheld: it has ended, and its report is written down.
            whole(others, response, **kwargs)

    async def aon_llm_end(self: Any, response: LLMResult, **kwargs: Any) -> None:
        first, others = _examiners_apart(self)
        try:
            with at_end_of(self):
                await awhole(first, response, **kwargs)
        finally:
            await awhole(others, response, **kwargs)

    CallbackManagerForLLMRun.on_llm_end = on_llm_end  # type: ignore[method-assign]
    AsyncCallbackManagerForLLMRun.on_llm_end = aon_llm_end  # type: ignore[method-assign]


def _examiners_apart(run: Any) -> Iterator[Any]:
    """The run's manager for the handlers that examine answers, then the one for all others."""
    for examiners in (True, False):
        part = copy(run)
        part.handlers = [
            handler
            for handler in run.handlers
            if isinstance(handler, DPECallbackHandler) is examiners
        ]
        yield part


def _question(sent: Sequence[Message]) -> str:
    """The user's last message; empty where none was seen."""
    return next((message.content for message in reversed(sent) if message.role == "user"), "")


def _turn(sent: Sequence[Message]) -> int:
    """The number of this model call, counted from the user's last message."""
    asked = max((place for place, message in enumerate(sent) if message.role == "user"), default=0)
    return 1 + sum(message.role == "assistant" for message in sent[asked:])


def _only_calls(generation: Generation) -> bool:
    """Whether a model calls tools without a word: that is a step and no answer."""
    message = generation.message if isinstance(generation, ChatGeneration) else None
    return not generation.text and bool(getattr(message, "tool_calls", None))


def _answer(generation: Generation) -> str:
    """The text of an answer; of one that is a tool call, the call's arguments."""
    if not _only_calls(generation) or not isinstance(generation, ChatGeneration):
        return generation.text
    return structured_text(generation.message)


def _has_structured_response(outputs: Any) -> bool:
    """Whether an agent's model node says that its model has answered by a tool call."""
    for output in outputs if isinstance(outputs, list | tuple) else [outputs]:
        update = getattr(output, "update", None) if not isinstance(output, Mapping) else output
        if isinstance(update, Mapping) and update.get("structured_response") is not None:
            return True
    return False


def _attachment(report: Report) -> Attachment:
    return report.model_dump(mode="json")


def _attach(generation: Generation, attachment: Attachment, receipt_id: str) -> None:
    metadata: Attachment = {METADATA_KEY: attachment}
    if receipt_id:
        metadata[RECEIPT_KEY] = receipt_id
    # A new dict each time: answers out of a cache share theirs with the answers before them.
    if isinstance(generation, ChatGeneration):
        message = generation.message
        message.response_metadata = {**message.response_metadata, **metadata}
    else:
        generation.generation_info = {**(generation.generation_info or {}), **metadata}


def _model(generation: Generation) -> str:
    """The model that answered, as it says itself; empty where it does not."""
    if not isinstance(generation, ChatGeneration):
        return ""
    metadata = generation.message.response_metadata
    return str(metadata.get("model_name") or metadata.get("model") or "")
