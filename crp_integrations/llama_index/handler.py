"""An event handler that examines every answer against the evidence of its query or agent."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, replace
from itertools import count
from threading import Lock
from typing import Any, Final, Literal, Self, TypeAlias, Unpack

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionStartEvent,
    LLMPredictEndEvent,
    LLMPredictStartEvent,
)
from llama_index.core.instrumentation.events.span import SpanDropEvent

from crp_integrations.adapters.arguments import (
    check_callables,
    check_relay,
    judge_for,
    late_report_hook,
)
from crp_integrations.adapters.observed_answers import (
    AnswerExaminer,
    Attach,
    Examination,
    attachment_of,
    check_attach,
    critical_risk,
    not_checked,
    was_examined,
)
from crp_integrations.dpe.rejections import rejected_claims, without_rejected
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.llama_index.messages import (
    arguments,
    calls_in,
    count_reasoning,
    messages_of,
    receipt_metadata,
    tool_results,
)
from crp_integrations.llama_index.nodes import METADATA_KEY, evidence_facts
from crp_integrations.llama_index.span_tree import SpanTree, method_name, process_tree
from crp_integrations.llama_index.spans import (
    WHOLE_REPORT,
    AgentPosition,
    ReportEvent,
    Span,
    SpanEvidence,
    agent_position,
    agent_run,
)
from crp_integrations.messages import Message
from crp_integrations.ports import share_in_copies
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.evidence import answer_text, has_evidence
from crp_integrations.relay.examination import grounding_mode
from crp_integrations.relay.judge import (
    BACKGROUND,
    JUDGING,
    Judge,
    JudgeChoices,
    JudgeSource,
    OnReport,
)
from crp_integrations.relay.relay import Relay
from crp_integrations.vocabulary.context import GroundingMode
from crp_integrations.vocabulary.provenance import RiskLevel

log = logging.getLogger("crp_integrations.llama_index")
dispatcher = get_dispatcher(__name__)

AGENT_KEY: Final = "crp_agent"
# Suffix of the methods that return an object; their answer may be a tool call.
_STRUCTURED: Final = "structured_predict"
# Numbers of the surrounding `with` blocks; a handler ignores events outside of its own.
_BLOCKS: Final[ContextVar[tuple[int, ...]]] = ContextVar("crp_llama_index_blocks", default=())
_NUMBERS: Final = count(1)
_CHANGING: Final = Lock()
# Limit on calls in progress, oldest dropped first: an unread stream sends no end event.
MAX_CALLS: Final = 4_096
# Threads in which judges read answers whose events came on an event loop.
_THREADS: Final = ThreadPoolExecutor(8, "crp-examine")
# Key in `Span.own` of a span whose answer such a thread examines.
EXAMINING: Final = "examining"


@dataclass(frozen=True, slots=True)
class _ModelCall:
    """A model call in progress, with its input as recorded at the start.

    Attributes:
        inner: True if another call in progress makes it, and that one is examined instead.
        sent: `id()` of each message object.
        messages, model: messages and model name for the sealed window.
    """

    span: Span | None
    position: AgentPosition
    evidence: tuple[SpanEvidence, ...]
    question: str
    inner: bool
    sent: tuple[int, ...]
    messages: tuple[Message, ...] = ()
    model: str = ""


_Calls: TypeAlias = OrderedDict[str, list[_ModelCall]]


class DPEEventHandler(BaseEventHandler):
    """Examines every answer and attaches the report; LlamaIndex swallows a handler's errors.

    Spec: CRP-SPEC-005 §2

    A summary of the report is added as plain JSON under `crp` to the metadata of a query or chat
    engine's response and of an agent's output, and to the `additional_kwargs` of a model's own
    response, together with `crp_agent` (agent, depth, turn, tool). A `ReportEvent` with both is
    published. A call whose query or tools found nothing, or whose examination failed, gets the
    level UNKNOWN, and `reasons` says why.

    `listen()` receives all events of the process from then on. As a context manager, the handler
    receives only events from inside the block, in this task or thread. On an event loop with a
    judge, answers do not wait for it: the report is attached when it has read them, at the latest
    at the end of an `async with` block.

        with DPEEventHandler(on_critical="raise") as handler:
            response = engine.query(question)

    Args:
        on_critical: `record`, or `raise` to end the `with` block with `SafetyHalt` if the risk of
            an answer in it is CRITICAL, or its judge failed and `judge_failure` is `halt`.
            `CRPQueryEngine` and `CRPAgentLLM` can withhold an answer earlier.
        on_report: called with each event, which contains the whole report; with a judge in
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

    _examiner: AnswerExaminer = PrivateAttr()
    _raises: bool = PrivateAttr()
    _on_report: Callable[[ReportEvent], None] | None = PrivateAttr()
    _relay: Relay | None = PrivateAttr()
    _on_receipt: Callable[[Receipt], None] | None = PrivateAttr()
    _tree: SpanTree = PrivateAttr()
    _lock: Any = PrivateAttr(default_factory=Lock)
    _calls: _Calls = PrivateAttr(default_factory=OrderedDict)
    _predicted: _Calls = PrivateAttr(default_factory=OrderedDict)
    _block: int = PrivateAttr(default=0)
    _halted: SafetyHalt | None = PrivateAttr(default=None)
    _judge: Judge | None = PrivateAttr()
    _attach: str = PrivateAttr()
    _last_report: dict[str, Any] | None = PrivateAttr(default=None)
    _waiting: list[Future[None]] = PrivateAttr(default_factory=list)

    __deepcopy__ = share_in_copies

    def __init__(
        self,
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        on_report: Callable[[ReportEvent], None] | None = None,
        attach: Attach = "summary",
        on_critical: Literal["record", "raise"] = "record",
        relay: Relay | None = None,
        on_receipt: Callable[[Receipt], None] | None = None,
        judge: JudgeSource = None,
        **judge_options: Unpack[JudgeChoices],
    ) -> None:
        super().__init__()
        if on_critical not in ("record", "raise"):
            raise RequestError(f"on_critical {on_critical!r:.40} is neither record nor raise")
        if relay is not None:
            check_relay(relay, "DPEEventHandler")
        # Checked here because LlamaIndex swallows what a handler raises later.
        check_callables(on_report=on_report, on_receipt=on_receipt)
        check_attach(attach)
        self._attach = attach
        self._on_report = on_report
        self._relay = relay
        self._on_receipt = on_receipt
        self._raises = on_critical == "raise"
        self._judge = judge_for(
            "DPEEventHandler",
            judge,
            judge_options,
            relay=relay,
            reports_itself=on_report is not None,
        )
        self._examiner = AnswerExaminer(grounding_mode(grounding), relay, self._judge, log)
        self._tree = process_tree()

    @classmethod
    def class_name(cls) -> str:
        """The handler's name."""
        return "DPEEventHandler"

    @property
    def last_report(self) -> dict[str, Any] | None:
        """The last answer's whole report; None before the first answer."""
        return self._last_report

    # --- registration ----------------------------------------------------------------------

    def listen(self) -> Self:
        """Receive all events of the process until `stop`.

        Raises:
            RequestError: `on_critical` is `raise`, which works only in a `with` block.
        """
        if self._raises:
            raise RequestError(
                "on_critical is raise, which needs a place to raise at: use the handler in a with "
                "statement, or record"
            )
        self._add()
        return self

    def stop(self) -> None:
        """Stop receiving events."""
        root = get_dispatcher()
        with _CHANGING:
            root.event_handlers = [
                handler for handler in root.event_handlers if handler is not self
            ]

    def __enter__(self) -> Self:
        if self._raises and self._judge is not None and _in_event_loop():
            raise RequestError(
                "on_critical is raise, and the judge is waited for; on an event loop use the "
                "handler in an async with statement"
            )
        return self._entered()

    def _entered(self) -> Self:
        if self._block:
            raise RequestError("the handler is in a with statement already; make another one")
        self._block = next(_NUMBERS)
        _BLOCKS.set((*_BLOCKS.get(), self._block))
        self._halted = None
        self._add()
        return self

    async def __aenter__(self) -> Self:
        return self._entered()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Wait for the judge without blocking the loop, then leave the block."""
        await asyncio.gather(*map(asyncio.wrap_future, self._waiting))
        self._exited(kind)

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if not _in_event_loop():
            wait(self._waiting)
        self._exited(kind)

    def _exited(self, kind: type[BaseException] | None) -> None:
        self.stop()
        self._waiting.clear()
        _BLOCKS.set(tuple(block for block in _BLOCKS.get() if block != self._block))
        halted, self._halted, self._block = self._halted, None, 0
        if kind is None and halted is not None and self._raises:
            raise halted

    def _add(self) -> None:
        root = get_dispatcher()
        process_tree()
        with _CHANGING:
            if all(handler is not self for handler in root.event_handlers):
                # A new list: another thread may be iterating over the old one.
                root.event_handlers = [*root.event_handlers, self]

    # --- events -------------------------------------------------------------------------------

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Examine each answer, attach the report and publish it."""
        if JUDGING.get() or (self._block and self._block not in _BLOCKS.get()):
            return
        try:
            self._dispatch(event)
        except Exception as error:  # noqa: BLE001 - LlamaIndex would swallow it without a log entry
            log.error("an event could not be handled: %s", type(error).__name__)

    def _dispatch(self, event: BaseEvent) -> None:
        match event:
            case LLMChatStartEvent():
                sent = tuple(id(message) for message in event.messages)
                call = self._start_call(event.span_id, event.messages, sent, _model(event))
                self._note(self._calls, event.span_id, call)
            case LLMCompletionStartEvent():
                messages = [ChatMessage(role="user", content=event.prompt)]
                call = self._start_call(event.span_id, messages, (), _model(event))
                self._note(self._calls, event.span_id, call)
            case LLMPredictStartEvent():
                self._note(self._predicted, event.span_id, self._start_call(event.span_id, ()))
            case ExceptionEvent() | SpanDropEvent():
                self._pop_call(self._calls, event.span_id)
                self._pop_call(self._predicted, event.span_id)
            case LLMChatEndEvent() | LLMCompletionEndEvent():
                begun = self._pop_call(self._calls, event.span_id)
                if begun is not None and event.response is not None:
                    self._finish(begun, event.response, _text(event.response, begun.span))
            case LLMPredictEndEvent():
                begun = self._pop_call(self._predicted, event.span_id)
                # Examined here if the LLM's methods lack the decorators that dispatch chat events.
                span = begun.span if begun is not None else None
                if begun and span and span.report is None and not span.own.get(EXAMINING):
                    self._finish(begun, None, event.output)

    def _start_call(
        self,
        span_id: str | None,
        messages: Sequence[ChatMessage],
        sent: tuple[int, ...] = (),
        model: str = "",
    ) -> _ModelCall:
        span = self._tree.span(span_id)
        inner = self._within_another(span, sent)
        run = agent_run(span)
        evidence = self._tree.evidence_of(span) if span is not None else ()
        if run is not None and not inner:
            with self._tree.lock:
                known = set(run.results)
            # Tool results of earlier runs are only in the messages.
            evidence = (
                *evidence,
                *(
                    SpanEvidence(tool=result.name, asked=result.asked, text=result.text)
                    for result in tool_results(messages)
                    if result.text not in known
                ),
            )
        question = next((item.query for item in evidence if item.query), "")
        if run is not None or not question:
            until = len(messages) - count_reasoning(messages)
            question = next(
                (
                    message.content or ""
                    for message in reversed(messages[:until])
                    if message.role == "user"
                ),
                question,
            )
        with self._tree.lock:
            unfounded = frozenset(run.unfounded) if run is not None else frozenset()
        seen = messages_of(messages, unfounded)
        return _ModelCall(span, agent_position(span), evidence, question, inner, sent, seen, model)

    def _note(self, calls: _Calls, span_id: str | None, call: _ModelCall) -> None:
        with self._lock:
            calls.setdefault(span_id or "", []).append(call)
            if len(calls) > MAX_CALLS:
                calls.popitem(last=False)

    def _pop_call(self, calls: _Calls, span_id: str | None) -> _ModelCall | None:
        with self._lock:
            waiting = calls.get(span_id or "")
            call = waiting.pop(0) if waiting else None
            if not waiting:
                calls.pop(span_id or "", None)
            return call

    def _within_another(self, span: Span | None, sent: tuple[int, ...]) -> bool:
        """Whether another call makes this one, or a surrounding span examines its answer."""
        path = span.path()[1:] if span is not None else []
        if any(around.covered for around in path):
            return True
        with self._lock:
            if any(around.id in self._calls for around in path):
                return True
            if span is None or not sent:
                return False
            # LlamaIndex may start the inner call of a stream only when it is read. The inner call's
            # span is then a sibling with the same messages.
            return any(
                call.sent == sent != ()
                and call.span is not None
                and call.span.parent is span.parent
                for calls in self._calls.values()
                for call in calls
            )

    def _finish(
        self, call: _ModelCall, response: ChatResponse | CompletionResponse | None, answer: str
    ) -> None:
        if call.inner:
            return
        judge = self._judge
        known = response is not None and _own_metadata(response) is not None
        waits = judge is not None and judge.settings.mode != BACKGROUND and not known
        if not waits or not _in_event_loop():
            self._report(call, response, answer)
            return
        # The event came on a loop, which the judge would block; its report follows the answer.
        for span in call.span.scope() if call.span is not None else ():
            span.own[EXAMINING] = True
        work = _THREADS.submit(copy_context().run, self._report_logged, call, response, answer)
        self._waiting = [waiting for waiting in self._waiting if not waiting.done()] + [work]

    def _report_logged(
        self, call: _ModelCall, response: ChatResponse | CompletionResponse | None, answer: str
    ) -> None:
        try:
            self._report(call, response, answer)
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread's result
            log.error("an answer could not be examined: %s", type(error).__name__)

    def _report(
        self, call: _ModelCall, response: ChatResponse | CompletionResponse | None, answer: str
    ) -> None:
        metadata = None if response is None else _own_metadata(response)
        seen = metadata is not None
        receipt, later = None, False
        whole = call.span.own.get(WHOLE_REPORT) if seen and call.span is not None else None
        if metadata is None:
            report, receipt, halt = self._examined(call, answer)
            receipt_id = receipt.receipt_id if receipt else ""
            if call.span is not None:
                self._tree.reject(call.span, rejected_claims(report))
            if report.risk_level is RiskLevel.CRITICAL:
                halt = halt or critical_risk(report)
            later = was_examined(report) and self._later_report(call) is not None
            whole = report.model_dump(mode="json")
            self._halted = self._halted or halt
            beside = {AGENT_KEY: call.position.on_message(), **receipt_metadata(receipt_id)}
            metadata = {METADATA_KEY: attachment_of(report, self._attach), **beside}
            if response is not None:
                # Always a new dict: answers from a cache share theirs with earlier answers.
                response.additional_kwargs = {**response.additional_kwargs, **metadata}
        if call.span is not None:
            self._tree.record_answer(call.span, metadata)
        self._last_report = whole or metadata[METADATA_KEY]
        position = {**call.position.as_json(), **metadata[AGENT_KEY]}
        event = _event(call, self._last_report, position)
        if not seen:
            dispatcher.event(event)
        if self._on_report is not None and not later:
            self._on_report(event)
        if receipt is not None and self._on_receipt is not None:
            self._on_receipt(receipt)

    def _later_report(self, call: _ModelCall) -> OnReport | None:
        """Callback for an answer's report after a background judge has answered."""
        return late_report_hook(
            self._judge,
            self._on_report,
            lambda report: _event(call, report.model_dump(mode="json"), call.position.as_json()),
        )

    def _examined(self, call: _ModelCall, answer: str) -> Examination:
        if not answer.strip():
            return not_checked("the answer has no text")
        if call.span is None:
            return not_checked("the spans around the call are not known")
        if not call.evidence and not has_evidence(call.messages):
            return not_checked(
                "nothing was retrieved for this call, no tool answered, and there was no system "
                "prompt"
            )
        run = agent_run(call.span)
        rejected = run.rejected if run is not None else ()
        shown = [
            replace(evidence, text=without_rejected(evidence.text, rejected))
            for evidence in call.evidence
        ]
        return self._examiner.examine(
            answer,
            lambda: evidence_facts(shown),
            call.question,
            messages=call.messages,
            rejected=rejected,
            model=call.model,
            on_report=self._later_report(call),
            depth=call.position.depth,
            turn=call.position.turn,
        )


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _event(call: _ModelCall, report: dict[str, Any], agent: dict[str, Any]) -> ReportEvent:
    return ReportEvent(
        report=report, agent=agent, span_id=call.span.id if call.span is not None else None
    )


def _model(event: LLMChatStartEvent | LLMCompletionStartEvent) -> str:
    return str(event.model_dict.get("model") or "")


def _text(response: ChatResponse | CompletionResponse, span: Span | None) -> str:
    """The text of an answer; JSON for a structured answer given as a tool call."""
    if not isinstance(response, ChatResponse):
        return response.text
    text = response.message.content or ""
    asked = span is not None and any(
        method_name(around.id).endswith(_STRUCTURED) for around in span.path()
    )
    if text.strip() or not asked:
        return text
    return "\n".join(answer_text(arguments(call)) for call in calls_in(response.message))


def _own_metadata(response: ChatResponse | CompletionResponse) -> dict[str, Any] | None:
    """Metadata attached by a window of this package, whose answer is already examined."""
    metadata = response.additional_kwargs
    if "window_id" not in (metadata.get(AGENT_KEY) or {}):
        return None
    return {name: value for name, value in metadata.items() if name.startswith(METADATA_KEY)}
