"""`CRPProxyHook`: CRP in LiteLLM's proxy, for all of its clients."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final, Unpack

from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from crp_integrations.adapters.arguments import check_values
from crp_integrations.adapters.conversations import STRATEGIES, check_strategy, question_of
from crp_integrations.engines.litellm import ARGUMENTS, PREFIX, refuse_crp, register_extractive
from crp_integrations.engines.litellm_versions import library, proxy_router
from crp_integrations.engines.models import WholeReplies
from crp_integrations.errors import ConfigError, CRPError, EngineError, RequestError
from crp_integrations.headers import refusal_bodies
from crp_integrations.litellm.attempt_packing import (
    CURRENT_ATTEMPTS,
    CallAttempts,
    call_arguments,
    first_model,
    install_hook,
    question_fields,
    refuse_metadata,
)
from crp_integrations.litellm.deployments import Deployments, read_answer
from crp_integrations.litellm.response_metadata import proof_of, proven_chunks, proven_response
from crp_integrations.messages import ModelCall, Reply
from crp_integrations.policy.inheritance import combine_strictest
from crp_integrations.policy.policy_text import parse_policy, render_policy
from crp_integrations.ports import share_in_copies
from crp_integrations.relay import steps
from crp_integrations.relay.drive import adrive
from crp_integrations.relay.question_fields import QuestionFields, from_headers, with_call_fields
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.steps import Drivable, Halt, Outcome, Release

litellm = library()

GRACE_SECONDS: Final = 5.0
# Envelope fields sent to the client, in addition to the ids of its facts.
_ENVELOPE_FIELDS: Final = {"etag", "state_hash", "quality_tier", "token_count", "token_budget"}
# The proxy's call types of a chat completion.
CHAT: Final = frozenset({"completion", "acompletion"})
# Arguments that further calls of the same request need besides those of the answer: for billing,
# retries and fallbacks.
_FURTHER_CALL_FIELDS: Final = frozenset(
    {"metadata", "timeout", "num_retries", "fallbacks", "disable_fallbacks"}
)
# Arguments that are set for each call.
_FIELDS_OF_EACH_CALL: Final = frozenset({"model", "messages", "stream", "stream_options"})
_LOGGING: Final = "litellm_logging_obj"
_INTERNAL: Final = "litellm.proxy.hooks"

RelayOf = Relay | Callable[[Any], Relay]
# The question of the current request, for when a call fails and LiteLLM drops its record of it. A
# weak reference, see `CURRENT_ATTEMPTS`.
_CURRENT_REQUEST: Final[ContextVar[weakref.ref[ProxyRequest] | None]] = ContextVar(
    "crp_litellm_request", default=None
)


class ProxyRequest(WholeReplies):
    """The question of one proxy request, from its first step to its outcome.

    Attributes:
        running: the call that the proxy makes; None until the question needs it.
    """

    def __init__(
        self,
        played: Drivable,
        deployments: Deployments,
        *,
        streams: bool,
        tells_usage: bool = False,
    ) -> None:
        """Create the question of one request."""
        self.running: CallAttempts | None = None
        self._deployments = deployments
        self._streams = streams
        self._tells_usage = tells_usage
        self._played = deployments.watched(played)
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._due: asyncio.Future[CallAttempts] = loop.create_future()
        self._reply: asyncio.Future[Reply] = loop.create_future()
        self._task: asyncio.Task[Outcome] | None = None
        self._ended = asyncio.Lock()
        self._response: Any = None

    async def begin(self) -> Outcome | None:
        """Run until the proxy's call is needed; return the outcome if the question ends earlier."""
        task = self._task = asyncio.create_task(adrive(self._played, self))
        try:
            await asyncio.wait((task, self._due), return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            task.cancel()
            raise
        if task.done():
            return task.result()
        self.running = self._due.result()
        return None

    async def take(self, response: Any) -> Outcome:
        """Continue with the proxy's response or stream, which is read once, to its end."""
        async with self._ended:
            if self._response is None and not self._reply.done():
                assert self.running is not None
                try:
                    read = read_answer(response, self.running, streams=self._streams)
                    [*_, spent] = [part async for part in read]
                except Exception as error:  # noqa: BLE001 - the outcome reports it
                    self._reply.set_exception(self._deployments.translated(error, self.running))
                except BaseException:
                    self.give_up()
                    raise
                else:
                    self._response = spent.response
                    self._deployments.spent.append(replace(spent, shown=0))
                    self._reply.set_result(spent.reply)
        return await self.outcome()

    async def fail(self, error: Exception) -> Outcome | None:
        """End the window because the proxy's call failed; None if there was no call."""
        if self.running is None or self._task is None:
            return None
        if not self._reply.done():
            self._reply.set_exception(self._deployments.translated(error, self.running))
        return await self.outcome()

    async def outcome(self) -> Outcome:
        """Wait for the outcome of the question."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    def ended(self) -> Outcome | None:
        """The outcome of the question; None if it has none yet."""
        task = self._task
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    def give_up(self) -> None:
        """Seal the window of a request whose client is gone; callable from any thread.

        Waits `GRACE_SECONDS` for a hook that may still arrive.
        """
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.call_later, GRACE_SECONDS, self._gone)

    def _gone(self) -> None:
        if self._task is not None and not self._reply.done():
            self._task.cancel()

    def released(self, outcome: Release) -> Any:
        """The client's response with the answer and its proof; for a stream, its chunks.

        The client gets the envelope's ids and numbers, but not the facts' texts.
        """
        answer, spent = outcome.answer, self._deployments.spent
        envelope = answer.envelope.model_dump(mode="json", include=_ENVELOPE_FIELDS)
        facts = [fact.fact_id for fact in answer.envelope.facts]
        proof = {**proof_of(answer, spent), "crp_envelope": {**envelope, "facts": facts}}
        if not self._streams:
            return proven_response(answer, spent, proof)
        chunks = proven_chunks(answer, spent, proof, tells_usage=self._tells_usage)
        ending = [chunk for chunk in chunks if chunk.choices][-1]
        if getattr(ending, "provider_specific_fields", None) is None:
            # Otherwise LiteLLM serializes the chunk in a short form without unknown fields.
            ending.provider_specific_fields = {}
        return chunks

    async def acall(self, call: ModelCall) -> Reply:
        """Answer a call of the question; the proxy makes the first call for an answer."""
        if self._due.done() or not self._deployments.answers(call):
            return await self._deployments.acall(call)
        self._due.set_result(self._deployments.proxied_call(call))
        return await self._reply

    def call(self, call: ModelCall) -> Reply:
        """Refuse: a proxy's calls are asynchronous."""
        raise EngineError("a proxy's calls are asynchronous", engine="litellm")


class CRPProxyHook(CustomLogger):
    """A callback of LiteLLM's proxy: `litellm_settings: callbacks: my_module.hook`.

    Every chat completion is a question to the fabric: its CRP headers are read, the envelope goes
    into the messages of each attempt, the answer is examined, judged and sealed before any byte of
    it is sent, and the response has the CRP headers, and the report as `crp`. A withheld or refused
    answer gets the HTTP status defined in `relay/steps.py`.

    Spec: CRP-SPEC-005 §1.2; related facts §3

    Args:
        relay: relay that supplies the facts and seals the windows; or a function from LiteLLM's
            `UserAPIKeyAuth` to the relay of that key's tenant.
        refuse_others: refuse requests other than chat completions; else they pass unchecked.
        asking: fields of a question as in `Relay.ask`, for all requests; a request's headers take
            precedence, except that they can only tighten `policy` and `safety_budget`.

    Raises:
        RequestError: a field is unknown or has no usable value, or `relay` is neither a relay nor
            a function.
        PolicySyntaxError: the policy does not follow its grammar.
    """

    __deepcopy__ = share_in_copies

    def __init__(
        self, relay: RelayOf, *, refuse_others: bool = False, **asking: Unpack[QuestionFields]
    ) -> None:
        super().__init__()
        if isinstance(relay, type) or not (isinstance(relay, Relay) or callable(relay)):
            raise RequestError(
                "CRPProxyHook takes a relay, as Relay.open(…) gives it, or a function that gives "
                f"the relay of a key, not {type(relay).__name__}"
            )
        self._asking = question_fields(asking, name="CRPProxyHook")
        own = relay if isinstance(relay, Relay) else None
        check_values(self._asking, own, taker="CRPProxyHook")
        check_strategy(self._asking.get("strategy"))
        policy = asking.get("policy")
        self._policy = parse_policy(policy) if policy else None
        self._relay = relay
        self._refuse_others = refuse_others
        # Keyed by LiteLLM's own record of a request, which no client can forge.
        self._open: weakref.WeakKeyDictionary[Any, ProxyRequest] = weakref.WeakKeyDictionary()
        register_extractive()

    # --- before the call -----------------------------------------------------------------

    # LiteLLM passes these parameter names as keywords.
    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any] | None:
        """Read the headers, pack the envelope, and put it into the messages.

        Raises:
            HTTPException: the request is refused, with the status, body and headers of CRP.
        """
        _CURRENT_REQUEST.set(None)
        CURRENT_ATTEMPTS.set(None)
        headers = _pop_crp_headers(data)
        if call_type not in CHAT:
            if headers or self._refuse_others:
                raise _error_response(
                    RequestError(f"CRP works on chat completions here, not on {call_type!r:.40}")
                )
            return None
        install_hook()
        try:
            request = await self._proxy_request(user_api_key_dict, data, headers)
            outcome = await request.begin()
        except CRPError as error:
            raise _error_response(error) from error
        if outcome is not None:
            raise _outcome_error(outcome)
        self._keep(data, request)
        return data

    async def _proxy_request(
        self, key: Any, data: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ProxyRequest:
        _refuse_metadata(data)
        if data.get("n") not in (None, 1):
            raise RequestError(f"n is {data['n']}; one answer is examined, so ask for one")
        router = proxy_router()
        if router is None:
            raise ConfigError("LiteLLM's proxy has no router; give it a model_list")
        group = str(data.get("model") or "")
        relay = self._relay if isinstance(self._relay, Relay) else self._relay(key)
        question = question_of(data.get("messages") or ())
        fields: dict[str, Any] = {
            **self._question_fields(headers),
            "model": first_model(router, group),
            "system_prompt": question.system,
            "history": question.history,
            "results": question.results,
            "max_tokens": data.get("max_completion_tokens") or data.get("max_tokens"),
            "temperature": data.get("temperature"),
            "tools": data.get("tools"),
        }
        if data.get("seed") is not None:
            fields["seed"] = data["seed"]
        played = await asyncio.to_thread(lambda: relay.play(question.question, **fields))
        arguments = {
            name: value
            for name, value in data.items()
            if name in _FURTHER_CALL_FIELDS
            or (name in litellm.OPENAI_CHAT_COMPLETION_PARAMS and name not in _FIELDS_OF_EACH_CALL)
        }
        deployments = Deployments(router, group, arguments)
        usage = (data.get("stream_options") or {}).get("include_usage")
        return ProxyRequest(
            played, deployments, streams=bool(data.get("stream")), tells_usage=bool(usage)
        )

    def _question_fields(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """The operator's fields combined with those in a request's headers."""
        requested: dict[str, Any] = dict(from_headers(headers))
        joined = with_call_fields(self._asking, requested)
        joined["policy"] = requested.get("policy")
        if self._policy is not None:
            # Inherited like the policy of a parent session, so that the strictest rules apply.
            above = requested.get("inherited_policy")
            both = combine_strictest(parse_policy(above), self._policy) if above else self._policy
            joined["inherited_policy"] = render_policy(both)
        budget = self._asking.get("safety_budget")
        if budget is not None and requested.get("safety_budget") is not None:
            joined["safety_budget"] = min(budget, requested["safety_budget"])
        named = joined.get("accept_strategies") or ()
        taken = [strategy for strategy in named if strategy in STRATEGIES]
        if named:
            joined["accept_strategies"] = taken or named
        for strategy in taken or named or (joined.get("strategy"),):
            check_strategy(strategy)
        return joined

    def _keep(self, data: dict[str, Any], request: ProxyRequest) -> None:
        """Put the call into LiteLLM's data, and store the question for the later hooks."""
        running, logging = request.running, data.get(_LOGGING)
        assert running is not None
        if logging is None:
            request.give_up()
            raise _error_response(EngineError("LiteLLM's proxy has no record of the request"))
        call = call_arguments(running.step, data)
        for name in ("temperature", "seed"):
            data.pop(name, None)
            if name in call:
                data[name] = call[name]
        data["messages"] = running.messages
        self._open[logging] = request
        _CURRENT_REQUEST.set(weakref.ref(request))
        # If the client disconnects during the model call, LiteLLM calls no later hook.
        weakref.finalize(logging, request.give_up)
        CURRENT_ATTEMPTS.set(weakref.ref(running))

    # --- after the call ------------------------------------------------------------------

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Examine, judge and seal the answer; return the response with its proof.

        Raises:
            HTTPException: the answer is withheld or refused.
        """
        request = self._of(data)
        if request is None:
            return response
        return request.released(await _released_outcome(request, response))

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the stream's chunks after the verdict; the last one contains the proof.

        Raises:
            HTTPException: the answer is withheld or refused; raised before any chunk.
        """
        request = self._of(request_data)
        if request is None:
            async for chunk in response:
                yield chunk
            return
        for chunk in request.released(await _released_outcome(request, response)):
            yield chunk

    async def async_post_call_response_headers_hook(
        self,
        data: dict[str, Any],
        user_api_key_dict: Any,
        response: Any,
        request_headers: dict[str, str] | None = None,
        litellm_call_info: dict[str, Any] | None = None,
    ) -> dict[str, str] | None:
        """The CRP headers of the outcome, also if the answer is withheld or refused.

        A stream is read here, so that its headers contain the verdict; but not if another callback
        changes streams, since the changed chunks must be examined later.
        """
        request = self._of(data)
        if request is None:
            return None
        if hasattr(response, "__aiter__") and not self._others():
            try:
                await request.take(response)
            except CRPError:
                # The hook for streams raises it again, for the client.
                return None
        outcome = request.ended()
        return None if outcome is None else _outcome_headers(outcome)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> HTTPException | None:
        """Seal the window of a failed call; the client gets LiteLLM's error."""
        request = self._of(request_data)
        if request is not None and request.ended() is None:
            try:
                outcome = await request.fail(original_exception)
            except CRPError as error:
                return _error_response(error)
            running = request.running
            # A refusal while packing for an attempt is not a provider's error.
            if running is not None and running.refused is not None and outcome is not None:
                return _outcome_error(outcome)
        return None

    def _of(self, data: Mapping[str, Any]) -> ProxyRequest | None:
        logging = data.get(_LOGGING)
        if logging is not None:
            return self._open.get(logging)
        current = _CURRENT_REQUEST.get()
        return current() if current else None

    def _others(self) -> bool:
        """Whether a callback, other than this and LiteLLM's own, changes streams."""
        name = "async_post_call_streaming_iterator_hook"
        for callback in litellm.callbacks:
            kind = type(callback)
            if callback is self or kind.__module__.startswith(_INTERNAL):
                continue
            if isinstance(callback, str) or hasattr(kind, "apply_guardrail"):
                return True
            if getattr(kind, name, None) is not getattr(CustomLogger, name, None):
                return True
        return False


async def _released_outcome(request: ProxyRequest, response: Any) -> Release:
    CURRENT_ATTEMPTS.set(None)
    try:
        outcome = await request.take(response)
    except CRPError as error:
        raise _error_response(error) from error
    if isinstance(outcome, Release):
        return outcome
    raise _outcome_error(outcome)


def _outcome_headers(outcome: Outcome) -> dict[str, str]:
    match outcome:
        case Release(answer=answer) | Halt(answer=answer):
            return dict(answer.headers)
        case _:
            return dict(outcome.headers)


def _outcome_error(outcome: Outcome) -> HTTPException:
    body = steps.outcome_body(outcome)
    detail = {} if body is None else body.model_dump(mode="json", exclude_none=True)
    more = {} if body is None else body.headers
    if body is None:
        detail = {"error": "not_modified", "message": "the envelope is not modified"}
    return HTTPException(
        steps.outcome_status(outcome), detail, {**_outcome_headers(outcome), **more}
    )


def _error_response(error: CRPError) -> HTTPException:
    body = refusal_bodies.refusal_body(error)
    detail = body.model_dump(mode="json", exclude_none=True)
    return HTTPException(error.status_hint, detail, dict(body.headers))


def _pop_crp_headers(data: Mapping[str, Any]) -> dict[str, str]:
    """Remove the CRP headers from a request, so that they are not logged, and return them."""
    request = data.get("proxy_server_request")
    headers: dict[str, str] = {}
    holders = (data, request, data.get("metadata"), data.get("litellm_metadata"))
    for place in [holder.get("headers") for holder in holders if isinstance(holder, Mapping)]:
        if not isinstance(place, MutableMapping):
            continue
        for name in [name for name in place if str(name).strip().lower().startswith(PREFIX)]:
            headers.setdefault(str(name), str(place.pop(name)))
    return headers


def _refuse_metadata(data: Mapping[str, Any]) -> None:
    """Check that a request's body would send no CRP metadata to a provider."""
    try:
        refuse_metadata(data)
        for name in ARGUMENTS:
            refuse_crp(data.get(name))
    except ConfigError as error:
        raise RequestError(str(error)) from error
