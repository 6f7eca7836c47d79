"""`CRPLogger`: reports on the answers of plain LiteLLM calls, which go their way unchanged."""

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
from crp_integrations.relay.defaults import EmbedderSource, chosen_embedder
from crp_integrations.relay.evidence import has_evidence, named_passages
from crp_integrations.relay.judge import JUDGING, JudgeChoices, JudgeSource
from crp_integrations.relay.records import conversation_of
from crp_integrations.relay.settings import Settings, load
from crp_integrations.relay.storeless_functions import examine
from crp_integrations.relay.world import check_components
from crp_integrations.vocabulary import GroundingMode

litellm = library()

from litellm.integrations.custom_logger import CustomLogger  # noqa: E402 - after library()

Context = Envelope | Sequence[Fact | str]
Attachment = dict[str, Any]

# Calls whose end LiteLLM never tells, such as streams that nobody reads, are given up oldest first.
MOST_CALLS: Final = 4_096
_CALL_ID: Final = "litellm_call_id"
log = logging.getLogger("crp_integrations.litellm")


@dataclass(frozen=True, slots=True)
class _ShownContext:
    context: Context
    question: str | None


@dataclass(slots=True)
class _LoggedCall:
    """A call on its way.

    Attributes:
        shown: what its model was shown; None where nobody said it.
        done: the attachment, once there is one.
        begun: an examination of its answer has begun.
        judges: it is a judge's, and its reply no answer.
    """

    shown: _ShownContext | None
    done: Future[Attachment] = field(default_factory=Future)
    begun: bool = False
    judges: bool = False


class CRPLogger(CustomLogger):
    """Examines every answer against what its own call was shown, and attaches the report.

    ```python
    logger = CRPLogger()
    logger.install()
    with logger.shown(envelope, question):
        response = litellm.completion(model, messages)
    report = logger.report(response)
    ```

    A call is paired with the innermost `shown` around it, in its own thread or task: callers that
    run side by side never get each other's. The attachment is the report as plain JSON; of what was
    not examined it has the level UNKNOWN, and `reasons` say why. It stands in `response.crp` as
    well: of `acompletion` when that returns, of others when `report` does.

    It withholds nothing: who streams has the tokens before LiteLLM tells a callback of the end.
    With a judge an attachment is made once that has spoken; in `background` mode it is the
    screen's, and `on_report` is called later. A judge's own calls are no answers, and get none.

    Spec: CRP-SPEC-005 §2

    Args:
        grounding: how far the prompt lets the model go beyond the context.
        on_report: called with what was attached, once for each call.
        embedder: None for the one that ships.
        settings: None reads `CRP_*` and the defaults.
        judge, judge_options: as in `examine`; None for the judge of the settings.

    Raises:
        RequestError: the grounding mode is not one of the three, or `on_report` no function; or the
            judge is True: no model is called here.
        ConfigError: what is given as an embedder, settings or a judge is none.
    """

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
        self._embedder = embedder and chosen_embedder(embedder, settings or load())
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
        """Make LiteLLM call it; again has no effect."""
        for callbacks in callback_lists():
            if self not in callbacks:
                callbacks.append(self)

    @contextmanager
    def shown(self, context: Context, question: str | None = None) -> Iterator[None]:
        """Calls made inside show their model this context.

        Args:
            context: an envelope, facts, or texts.
            question: what is asked; None where it is not known.

        Raises:
            RequestError: the context is none of these, or the question no text.
        """
        # Checked now: when the answer comes, no caller is left to get the error.
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
        """What was attached to a response, or to a stream that was read to its end.

        LiteLLM tells of an answer in the background, so it is waited for.

        Args:
            timeout: seconds.

        Raises:
            RequestError: the response is of no call that this logger heard of.
            TimeoutError: LiteLLM did not tell of the answer, as of a stream not read to its end.
        """
        return self._call_of(response).done.result(timeout)

    async def areport(self, response: Any, timeout: float | None = 60.0) -> Attachment:
        """The asynchronous twin of `report`."""
        done = asyncio.wrap_future(self._call_of(response).done)
        return await asyncio.wait_for(asyncio.shield(done), timeout)

    # --- what LiteLLM tells; it calls these with these parameter names ---------------------

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: dict[str, Any]) -> None:
        """Note what a call shows; LiteLLM asks in the caller's own thread or task."""
        self._noted(kwargs)

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Note what a call shows, also of a provider that LiteLLM does not tell of later."""
        self._noted(kwargs)

    async def async_post_call_success_deployment_hook(
        self, request_data: dict[str, Any], response: Any, call_type: Any
    ) -> Any:
        """Attach the report before the caller has the answer."""
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

    # --- within --------------------------------------------------------------------------

    def _noted(self, kwargs: dict[str, Any]) -> None:
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
            while len(self._calls) > MOST_CALLS:
                self._calls.popitem(last=False)

    def _call_of(self, response: Any) -> _LoggedCall:
        call_id = notes_of(response).get(_CALL_ID)
        call_id = call_id or getattr(getattr(response, "logging_obj", None), _CALL_ID, None)
        with self._lock:
            call = self._calls.get(str(call_id))
        if call is None:
            raise RequestError(
                "the response is of no call that this logger heard of; install it before the call"
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
        """The attachment, and whether its judge tells `on_report`."""
        if shown is None and not has_evidence(conversation):
            return _unread("nobody said what the call was shown, and no tool answered"), False
        if answers != 1:
            return _unread(f"the response holds {answers} answers"), False
        if not answer:
            return _unread("the answer holds no text"), False
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
            # It withholds nothing; the report says that the judge failed.
            report = cast("Report", halt.report)
        except Exception as error:  # noqa: BLE001 - whatever it is, the report says it
            # Its own words may quote a text, which no log may hold.
            log.error("the examination of an answer failed with %s", type(error).__name__)
            return _unread(f"the examination failed with {type(error).__name__}", answer), False
        return _report_json(report), self._later is not None


def _tool_conversation(messages: object) -> tuple[Message, ...]:
    """What a call's messages say of tools; nothing where they are no text."""
    try:
        read = conversation_of(messages) if isinstance(messages, list) else []
    except RequestError:
        return ()
    return examined_conversation(read)


def _report_json(report: Report) -> Attachment:
    return report.model_dump(mode="json")


def _call_id(kwargs: dict[str, Any]) -> str:
    """LiteLLM's id of a call, wherever this version of it has it."""
    inner = kwargs.get("litellm_params")
    call_id = kwargs.get(_CALL_ID) or (inner.get(_CALL_ID) if isinstance(inner, dict) else None)
    return str(call_id or "")


def _answer_text(response: Any, kwargs: Mapping[str, Any] | None = None) -> str | None:
    """The text of a whole response; None for a stream's piece or what is no answer.

    Where the caller named the tool that must be called, that call's arguments are the answer.
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
