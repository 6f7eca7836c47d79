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

from langchain_core.callbacks.manager import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
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
from crp_integrations.langchain.messages import METADATA_KEY, RECEIPT_KEY, facts_of, structured_text
from crp_integrations.langchain.runs import (
    MAX_TREES,
    RetrieverResult,
    RunTreeHandler,
    SentCall,
    SentMessages,
    agent_depth,
    examining,
    keep_for_outer,
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


# Key in a call's options if LangChain parses the answer into an object.
_STRUCTURED: Final = "ls_structured_output_format"


@dataclass(frozen=True, slots=True)
class _CallAnswers:
    """The answers of one model call, with the documents and messages for it."""

    run_id: UUID
    answers: Sequence[Generation]
    context: tuple[RetrieverResult, ...] | None
    sent: SentCall
    rejected: tuple[RejectedClaim, ...]


class DPECallbackHandler(RunTreeHandler):
    """Examines every answer and attaches the report; by default, it stops no answer.

    Spec: CRP-SPEC-005 §2

    A summary of the report is added as plain JSON to `response_metadata["crp"]` of each answer's
    message (to `generation_info["crp"]` for models that return strings). The evidence is the
    documents from the chain's retrievers, the tool results, and the system prompt that the
    application wrote. A call with none of these, or whose examination failed, gets the level
    UNKNOWN, and `reasons` says why. A callback sees the end of a stream after its chunks have been
    shown: use `CRPGate` or `CRPMiddleware` to withhold an answer. Inside `CRPMiddleware` the
    handler receives the sealed report.

    Tracers among the callbacks see an answer after its report is attached: the first handler
    created wraps `on_llm_end` of LangChain's run managers for model calls.

    Attributes:
        last_report: the last answer's whole report; None before the first answer.

    Args:
        on_critical: `record`, or `raise` to end the call with `SafetyHalt` if an answer's risk
            is CRITICAL, or if its judge failed and `judge_failure` is `halt`.
        on_report: called with each answer's whole report as plain JSON; with a judge in
            `background` mode, after the judge has answered.
        attach: how much is attached: `full`, `summary` (at most 700 bytes), or `id`.
        relay: relay whose engines examine, and whose store gets each answer as a sealed window.
        on_receipt: called with the receipt on each sealed answer. A receipt with texts that are
            not in the relay's fabric is kept nowhere else.
        judge, judge_options: as in `examine`; None for the relay's judge, or that of the settings.

    Raises:
        RequestError: an argument has no usable value, or the judge is True.
        ConfigError: the judge is not a model.
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
        # Checked here because LangChain swallows what a handler raises later.
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
        # Model calls that answered with tool calls and no text, by parent run.
        self._steps: OrderedDict[UUID, _CallAnswers] = OrderedDict()
        self.last_report: Attachment | None = None
        # LangChain swallows a handler's errors unless this attribute is True.
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
        """Record the run's parent, the messages, and whether a structured answer is requested."""
        self._runs.start(run_id, parent_run_id)
        self._sent.note(run_id, messages, structured=_STRUCTURED in (kwargs.get("options") or {}))

    def on_llm_end(
        self, response: LLMResult, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Examine each answer and attach the report.

        Raises:
            SafetyHalt: `on_critical` is `raise`, and an answer's risk is CRITICAL or its judge
                failed with `judge_failure` set to `halt`.
        """
        sent = self._sent.pop(run_id)
        if JUDGING.get() or leave_to_window(self):
            # A judge's reply is not an answer; a window's answer gets the sealed report later.
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
            # Only tool calls: examined later, if the agent reports that they were the answer.
            self._steps[parent_run_id] = _CallAnswers(run_id, generations, context, sent, rejected)
            while len(self._steps) > MAX_TREES:
                self._steps.popitem(last=False)
        self._conclude(_CallAnswers(run_id, answers, context, sent, rejected))

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Examine a structured answer that an agent's model gave as a tool call; end the run.

        Raises:
            SafetyHalt: as for any answer.
        """
        step = self._steps.pop(run_id, None)
        try:
            if step is not None and _has_structured_response(outputs):
                self._conclude(step)
        finally:
            super().on_chain_end(outputs, run_id=run_id, **kwargs)

    def _conclude(self, step: _CallAnswers) -> None:
        """Examine the answers of a model call, attach the reports and call the hooks."""
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
                # Otherwise the background judge calls `on_report`.
                if self._on_judged is None or not was_examined(report):
                    whole.append(_attachment(report))
                halted = halted or halt
                beside = {RECEIPT_KEY: receipt.receipt_id} if receipt else {}
                attached = attachment_of(report, self._attach)
                _attach(generation, {METADATA_KEY: attached, **beside})
                receipts += [receipt] if receipt else []
            # After all reports are attached, so that a hook that raises leaves none out.
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
        """Receive the report of the sealed window around the model call.

        Raises:
            SafetyHalt: its risk is CRITICAL, and `on_critical` is `raise`.
        """
        self.last_report = _attachment(report)
        if self._on_report is not None:
            self._on_report(self.last_report)
        if report.risk_level is RiskLevel.CRITICAL and self.raise_error:
            raise critical_risk(report)

    def _reject(self, run_id: UUID, report: Report) -> None:
        """Pass flagged claims to the agent whose tool call is running."""
        self._runs.reject(run_id, rejected_claims(report))
        keep_for_outer(None, report)

    def _examined(self, generation: Generation, step: _CallAnswers) -> Examination:
        context, sent = step.context, step.sent
        answer = _answer(generation)
        if not answer.strip():
            return not_checked("the answer has no text")
        if context is None and not has_evidence(sent.messages):
            return not_checked(
                "no retriever ran in the chain of this call, no tool answered, and there was no "
                "system prompt"
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
    """Call handlers that examine answers before all others at the end of a model call.

    LangChain calls handlers in the order given, asynchronously those with `run_inline` first; a
    tracer called before the examination would record the answer without its report.
    """
    original = CallbackManagerForLLMRun.on_llm_end
    aoriginal = AsyncCallbackManagerForLLMRun.on_llm_end

    def on_llm_end(self: Any, response: LLMResult, **kwargs: Any) -> None:
        first, others = _examiners_apart(self)
        try:
            with examining(self):
                original(first, response, **kwargs)
        finally:
            # Also if an answer is withheld: the call has ended, and tracers record its report.
            original(others, response, **kwargs)

    async def aon_llm_end(self: Any, response: LLMResult, **kwargs: Any) -> None:
        first, others = _examiners_apart(self)
        try:
            with examining(self):
                await aoriginal(first, response, **kwargs)
        finally:
            await aoriginal(others, response, **kwargs)

    CallbackManagerForLLMRun.on_llm_end = on_llm_end  # type: ignore[method-assign]
    AsyncCallbackManagerForLLMRun.on_llm_end = aon_llm_end  # type: ignore[method-assign]


def _examiners_apart(run: Any) -> Iterator[Any]:
    """Copies of a run manager: one with the examining handlers, then one with all others."""
    for examiners in (True, False):
        part = copy(run)
        part.handlers = [
            handler
            for handler in run.handlers
            if isinstance(handler, DPECallbackHandler) is examiners
        ]
        yield part


def _question(sent: Sequence[Message]) -> str:
    """The user's last message; empty if there is none."""
    return next((message.content for message in reversed(sent) if message.role == "user"), "")


def _turn(sent: Sequence[Message]) -> int:
    """The number of this model call, counted from the user's last message."""
    asked = max((place for place, message in enumerate(sent) if message.role == "user"), default=0)
    return 1 + sum(message.role == "assistant" for message in sent[asked:])


def _only_calls(generation: Generation) -> bool:
    """Whether a reply has tool calls and no text, which is a step and not an answer."""
    message = generation.message if isinstance(generation, ChatGeneration) else None
    return not generation.text and bool(getattr(message, "tool_calls", None))


def _answer(generation: Generation) -> str:
    """The text of an answer; the arguments if the answer is a tool call."""
    if not _only_calls(generation) or not isinstance(generation, ChatGeneration):
        return generation.text
    return structured_text(generation.message)


def _has_structured_response(outputs: Any) -> bool:
    """Whether an agent's model node reports that a tool call was the answer."""
    for output in outputs if isinstance(outputs, list | tuple) else [outputs]:
        update = getattr(output, "update", None) if not isinstance(output, Mapping) else output
        if isinstance(update, Mapping) and update.get("structured_response") is not None:
            return True
    return False


def _attachment(report: Report) -> Attachment:
    return report.model_dump(mode="json")


def _attach(generation: Generation, metadata: Attachment) -> None:
    # Always a new dict: answers from a cache share theirs with earlier answers.
    if isinstance(generation, ChatGeneration):
        message = generation.message
        message.response_metadata = {**message.response_metadata, **metadata}
    else:
        generation.generation_info = {**(generation.generation_info or {}), **metadata}


def _model(generation: Generation) -> str:
    """The model name in the answer's metadata; empty if there is none."""
    if not isinstance(generation, ChatGeneration):
        return ""
    metadata = generation.message.response_metadata
    return str(metadata.get("model_name") or metadata.get("model") or "")
