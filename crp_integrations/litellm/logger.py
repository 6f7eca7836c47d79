"""`CRPLogger`: reports on the answers of plain LiteLLM calls, without changing the calls."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Unpack, cast

from crp_integrations.adapters.arguments import (
    check_callables,
    examined_conversation,
    judge_for,
    late_report_hook,
)
from crp_integrations.adapters.observed_answers import unread_report
from crp_integrations.dpe.records import Report
from crp_integrations.engines.litellm_versions import callback_lists, library, notes_of
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message, Reply, ToolCall, with_forced_calls
from crp_integrations.ports import share_in_copies
from crp_integrations.relay.defaults import EmbedderSource, chosen_embedder, chosen_settings
from crp_integrations.relay.evidence import has_evidence, named_passages
from crp_integrations.relay.judge import JUDGING, JudgeChoices, JudgeSource
from crp_integrations.relay.records import conversation_of
from crp_integrations.relay.settings import Settings
from crp_integrations.relay.storeless_functions import examine
from crp_integrations.relay.world import check_components
from crp_integrations.vocabulary import GroundingMode

litellm = library()

from litellm.integrations.custom_logger import CustomLogger  # noqa: E402 - after library()

Context = Envelope | Sequence[Fact | str]
Attachment = dict[str, Any]

# Limit on recorded calls, oldest dropped first: an unread stream has no end event.
MAX_CALLS: Final = 4_096
_CALL_ID: Final = "litellm_call_id"
log = logging.getLogger("crp_integrations.litellm")


@dataclass(frozen=True, slots=True)
class _ShownContext:
    context: Context
    question: str | None


@dataclass(slots=True)
class _LoggedCall:
    """A call in progress.

    Attributes:
        shown: context that its model was shown; None if not given.
        done: future of the attachment.
        begun: True once the examination of its answer has begun.
        judges: True for a judge's call, whose reply is not an answer.
    """

    shown: _ShownContext | None
    done: Future[Attachment] = field(default_factory=Future)
    begun: bool = False
    judges: bool = False


class CRPLogger(CustomLogger):
    """Examines every answer against the context shown to its call, and attaches the report.

    ```python
    logger = CRPLogger()
    logger.install()
    with logger.shown(envelope, question):
        response = litellm.completion(model, messages)
    report = logger.report(response)
    ```

    A call belongs to the innermost `shown` around it, in its own thread or task, so concurrent
    callers never get each other's. The attachment is the report as plain JSON; if an answer was
    not examined, its level is UNKNOWN and `reasons` says why. It is also set as `response.crp`:
    for `acompletion` before it returns, for other calls before `report` returns.

    The logger withholds nothing: a stream's tokens arrive before LiteLLM calls it at the end.
    With a judge, the attachment is made after the judge has answered; in `background` mode it is
    made before, and `on_report` is called later. Calls of a judge itself get no attachment.

    Spec: CRP-SPEC-005 §2

    Args:
        grounding: how far the prompt lets the model go beyond the context.
        on_report: called with the attachment, once for each call.
        embedder: None for the built-in one.
        settings: None reads the `CRP_*` variables and the defaults.
        judge, judge_options: as in `examine`; None for the judge in the settings.

    Raises:
        RequestError: the grounding mode is unknown, `on_report` is not a function, or the judge is
            True, although no model is called here.
        ConfigError: the embedder, the settings or the judge has the wrong type.
    """

    __deepcopy__ = share_in_copies

    def __init__(
        self,
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        on_report: Callable[[Attachment], None] | None = None,
        embedder: EmbedderSource | None = None,
        settings: Settings | None = None,
        judge: JudgeSource = None,
        **judge_options: Unpack[JudgeChoices],
    ) -> None:
        super().__init__()
        if grounding not in tuple(GroundingMode):
            wanted = ", ".join(GroundingMode)
            raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}")
        check_callables(on_report=on_report)
        check_components(settings=settings)
        self._grounding = GroundingMode(grounding)
        self._on_report = on_report
        self._embedder = embedder and chosen_embedder(embedder, chosen_settings(settings))
        self._settings = settings
        self._judge = judge_for(
            "CRPLogger", judge, judge_options, settings, reports_itself=on_report is not None
        )
        self._later = late_report_hook(self._judge, on_report, _report_json)
        self._around: ContextVar[_ShownContext | None] = ContextVar(
            "crp_litellm_shown", default=None
        )
        self._calls: OrderedDict[str, _LoggedCall] = OrderedDict()
        self._lock = Lock()

    def install(self) -> None:
        """Register with LiteLLM; a second call has no effect."""
        for callbacks in callback_lists():
            if self not in callbacks:
                callbacks.append(self)

    @contextmanager
    def shown(self, context: Context, question: str | None = None) -> Iterator[None]:
        """Declare the context that calls in the `with` block show their model.

        Args:
            context: an envelope, facts, or texts.
            question: the question; None if unknown.

        Raises:
            RequestError: the context or the question has the wrong type.
        """
        # Checked now, since an error at the time of the answer would not reach the caller.
        untyped: object = context
        if isinstance(untyped, str) or not isinstance(untyped, Envelope | Sequence):
            seen = "one string" if isinstance(untyped, str) else type(untyped).__name__
            raise RequestError(f"context is {seen}; give an envelope, or a list of facts or texts")
        named_passages(context if isinstance(context, Sequence) else context.facts)
        if question is not None and not isinstance(question, str):
            raise RequestError(f"question is {type(question).__name__}, wanted a text")
        token = self._around.set(_ShownContext(context, question))
        try:
            yield
        finally:
            self._around.reset(token)

    def report(self, response: Any, timeout: float | None = 60.0) -> Attachment:
        """The attachment of a response, or of a stream that was read to its end.

        Waits for it, since LiteLLM calls the logger in the background.

        Args:
            timeout: time limit in seconds.

        Raises:
            RequestError: the response belongs to no call that this logger observed.
            TimeoutError: LiteLLM did not report the answer, such as for an unread stream.
        """
        return self._call_of(response).done.result(timeout)

    async def areport(self, response: Any, timeout: float | None = 60.0) -> Attachment:
        """The asynchronous twin of `report`."""
        done = asyncio.wrap_future(self._call_of(response).done)
        return await asyncio.wait_for(asyncio.shield(done), timeout)

    # --- LiteLLM's hooks; it passes these parameter names as keywords -----------------------

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: dict[str, Any]) -> None:
        """Record the context of a call; LiteLLM calls this in the caller's thread or task."""
        self._record_call(kwargs)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Record the context of a call, also for providers without `log_pre_api_call`."""
        self._record_call(kwargs)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> Any:
        """Attach the report before the caller gets the answer."""
        if _answer_text(response) is not None:
            await asyncio.to_thread(self._examined, request_data, response)
        return None

    def log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Examine the answer of a synchronous call, or the whole of a stream."""
        self._examined(kwargs, response_obj)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Examine the whole of a stream."""
        await asyncio.to_thread(self._examined, kwargs, response_obj)

    # --- helpers -------------------------------------------------------------------------

    def _record_call(self, kwargs: dict[str, Any]) -> None:
        call_id = _call_id(kwargs)
        if not call_id:
            return
        with self._lock:
            known = self._calls.get(call_id)
            shown = self._around.get()
            if known is None:
                self._calls[call_id] = _LoggedCall(shown, judges=JUDGING.get())
            elif known.shown is None:
                known.shown = shown
            while len(self._calls) > MAX_CALLS:
                self._calls.popitem(last=False)

    def _call_of(self, response: Any) -> _LoggedCall:
        call_id = notes_of(response).get(_CALL_ID)
        call_id = call_id or getattr(getattr(response, "logging_obj", None), _CALL_ID, None)
        with self._lock:
            call = self._calls.get(str(call_id))
        if call is None:
            raise RequestError(
                "this logger observed no call with this response; install it before the call"
            )
        return call

    def _examined(self, kwargs: dict[str, Any], response: Any) -> None:
        answer = _answer_text(response, kwargs)
        call_id = _call_id(kwargs)
        if answer is None or not call_id:
            return
        with self._lock:
            call = self._calls.setdefault(call_id, _LoggedCall(None, judges=JUDGING.get()))
            if call.begun or call.judges:
                return
            call.begun = True
        results = _tool_conversation(kwargs.get("messages"))
        attachment, later = self._attachment(call.shown, answer, len(response.choices), results)
        response.crp = attachment
        try:
            if self._on_report is not None and not later:
                self._on_report(attachment)
        finally:
            call.done.set_result(attachment)

    def _attachment(
        self,
        shown: _ShownContext | None,
        answer: str,
        answers: int,
        conversation: Sequence[Message],
    ) -> tuple[Attachment, bool]:
        """The attachment, and whether the judge calls `on_report` later."""
        if shown is None and not has_evidence(conversation):
            return _unread("no context was given for the call, and no tool answered"), False
        if answers != 1:
            return _unread(f"the response contains {answers} answers"), False
        if not answer:
            return _unread("the answer has no text"), False
        try:
            report = examine(
                answer,
                shown.context if shown is not None else (),
                shown.question if shown is not None else None,
                conversation=conversation,
                grounding=self._grounding,
                embedder=self._embedder,
                settings=self._settings,
                judge=self._judge,
                on_report=self._later,
            )
        except SafetyHalt as halt:
            # Not raised, as nothing is withheld here; the report says that the judge failed.
            report = cast("Report", halt.report)
        except Exception as error:  # noqa: BLE001 - the report names any error
            # Only the type is logged: the message may quote a text.
            log.error("the examination of an answer failed with %s", type(error).__name__)
            return _unread(f"the examination failed with {type(error).__name__}", answer), False
        return _report_json(report), self._later is not None


def _tool_conversation(messages: object) -> tuple[Message, ...]:
    """A call's messages that serve as evidence; empty if they are not text."""
    try:
        read = conversation_of(messages) if isinstance(messages, list) else []
    except RequestError:
        return ()
    return examined_conversation(read)


def _report_json(report: Report) -> Attachment:
    return report.model_dump(mode="json")


def _call_id(kwargs: dict[str, Any]) -> str:
    """LiteLLM's id of a call, whose place depends on LiteLLM's version."""
    inner = kwargs.get("litellm_params")
    call_id = kwargs.get(_CALL_ID) or (inner.get(_CALL_ID) if isinstance(inner, dict) else None)
    return str(call_id or "")


def _answer_text(response: Any, kwargs: Mapping[str, Any] | None = None) -> str | None:
    """The text of a whole response; None for a chunk of a stream or another kind of response.

    If the caller named a tool that must be called, the call's arguments are the answer.
    """
    choices = getattr(response, "choices", None)
    message = getattr(choices[0], "message", None) if choices else None
    if message is None:
        return None
    asked = dict(kwargs or {})
    choice = asked.get("tool_choice") or (asked.get("optional_params") or {}).get("tool_choice")
    calls = tuple(
        ToolCall(id="", name=call.function.name or "", arguments=call.function.arguments or "")
        for call in getattr(message, "tool_calls", None) or ()
    )
    return with_forced_calls(
        Reply(text=str(message.content or ""), tool_calls=calls), choice
    ).answer


def _unread(reason: str, answer: str = "") -> Attachment:
    """The report on an answer that was not examined."""
    return _report_json(unread_report(reason, answer))
