"""`CRPRouter`: a LiteLLM router that packs for every attempt and checks every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal

from crp_integrations.adapters.action_gate import (
    ACTIONS_KEY,
    REPORT,
    WITHHOLD,
    ActionGate,
    GroundTools,
    OnAction,
    call_hash,
)
from crp_integrations.adapters.arguments import check_relay, check_values
from crp_integrations.adapters.conversations import context_value, question_of
from crp_integrations.dpe.actions.records import RIGHT, SHOWN_ARGUMENTS, SHOWN_VALUE
from crp_integrations.engines.extractive import EXTRACTIVE
from crp_integrations.engines.litellm import (
    ARGUMENTS,
    refuse_crp,
    refuse_unlisted,
    register_extractive,
)
from crp_integrations.engines.litellm_versions import library, plain_tools
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError, printable
from crp_integrations.litellm.attempt_packing import (
    FUNCTION_CALLBACKS,
    check_entries,
    first_model,
    install_hook,
    question_fields,
    refuse_metadata,
    refuse_question_fields,
    tools_of,
)
from crp_integrations.litellm.deployments import Deployments, make_in_loop, run_blocking
from crp_integrations.litellm.response_metadata import CRPStream, proof_of, proven_response
from crp_integrations.messages import Message, Reply, ToolCall
from crp_integrations.ports import share_in_copies
from crp_integrations.relay import steps
from crp_integrations.relay.drive import adrive, adrive_stream
from crp_integrations.relay.judge import JUDGE_OPTIONS
from crp_integrations.relay.records import conversation_of
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.world import CheckedCalls

litellm = library()

# Fields of a question that are accepted among LiteLLM's arguments.
_JUDGING: Final = ("judge", *JUDGE_OPTIONS)
_NAMED: Final = ("budget_tokens", "grounding", "session_id", "k")


class CRPRouter:
    """A LiteLLM router over deployments, with the fabric's facts in every call.

    Each attempt gets the envelope packed for its own model: its tokenizer, its context limit, or
    the `max_input_tokens` of its entry. The answer is examined against the envelope of the attempt
    that answered. The list may contain `extractive`, which needs no key.

    Attributes:
        router: the wrapped `litellm.Router`.
    """

    __deepcopy__ = share_in_copies

    def __init__(
        self,
        model_list: Sequence[Mapping[str, Any]],
        *,
        relay: Relay,
        allow_headers: Sequence[str] = (),
        policy: str | None = None,
        ground_tools: GroundTools = None,
        on_ungrounded: Literal["report", "withhold"] = "report",
        on_action: OnAction | None = None,
        **router_kwargs: Any,
    ) -> None:
        """Create the router.

        Args:
            relay: relay that supplies the facts and seals the windows.
            allow_headers: names of HTTP headers that a call may send to its provider.
            policy: policy of every call; a call can tighten it with `crp={"policy": …}`.
            ground_tools: True to check the tool calls of an answer, names of tools, or rules by
                tool, as in `check_call`. The router runs no tool.
            on_ungrounded: what happens to an answer with a call that may not run, or was not read:
                `report` returns it, `withhold` raises `SafetyHalt`.
            on_action: called with the report on each tool call.
            router_kwargs: arguments of `litellm.Router`; and defaults for `judge`, `judge_when`,
                `judge_budget`, `judge_mode`, `judge_failure` and `on_report` of calls.
        """
        check_relay(relay, "CRPRouter")
        self._judging = _pop_fields(router_kwargs, _JUDGING)
        if policy is not None:
            self._judging["inherited_policy"] = policy
        check_values(self._judging, relay)
        check_entries(model_list)
        refuse_question_fields(router_kwargs)
        if isinstance(allow_headers, str):
            raise RequestError(
                f"allow_headers is the text {allow_headers!r:.60}; give a list of names"
            )
        common = router_kwargs.get("default_litellm_params") or {}
        for params in (common, *((entry.get("litellm_params") or {}) for entry in model_list)):
            for name in ARGUMENTS:
                refuse_crp(params.get(name))
            refuse_metadata(params)
        refuse_crp(dict.fromkeys(allow_headers))
        register_extractive()
        entries = [_entry(entry) for entry in model_list]
        self.router = make_in_loop(lambda: litellm.Router(model_list=entries, **router_kwargs))
        self._relay = relay
        self._allowed = tuple(allow_headers)
        self._gate = ActionGate.of(
            ground_tools,
            relay,
            self._judging,
            on_ungrounded=on_ungrounded,
            on_action=on_action,
            actions=(REPORT, WITHHOLD),
        )

    def __getattr__(self, name: str) -> Any:
        """Other attributes of `litellm.Router`; calls through them are not checked."""
        # Copying and unpickling look up attributes before `router` is set.
        if name.startswith("_") or "router" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r:.80}")
        return getattr(self.router, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of `litellm.Router`; one that it does not have is refused."""
        if name.startswith("_") or name == "router" or hasattr(type(self), name):
            super().__setattr__(name, value)
        # `dir` first, since LiteLLM warns where a deprecated attribute is read.
        elif name in dir(self.router) or hasattr(self.router, name):
            setattr(self.router, name, value)
        else:
            raise AttributeError(
                f"litellm.Router has no attribute {name!r:.80} to set; name one of its own, such "
                "as num_retries"
            )

    async def acompletion(
        self,
        model: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        stream: bool = False,
        crp: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Answer a conversation's last question from the fabric.

        Only the user's last message is the question to the fabric; the other messages are sent
        unchanged, system messages first. Tool results may follow the question.

        Spec: CRP-SPEC-005 §1.2

        Args:
            model: name of a group in the model list.
            messages: text messages in the OpenAI format; the last is the user's or a tool result.
            stream: return a stream. Its chunks arrive as the model sends them, but after the
                verdict if the answer may be withheld, asked for again or continued.
            crp: fields of a question as in `Relay.ask`, such as `policy`, `strategy` or `cache`.
            kwargs: LiteLLM's arguments, such as `max_tokens` or `tools`; and `budget_tokens`,
                `grounding`, `session_id`, `k`, `judge`, `judge_when`, `judge_budget`, `judge_mode`,
                `judge_failure` and `on_report`, as in `crp`.

        Returns:
            LiteLLM's response with the report in `response.crp`, the envelope in
            `response.crp_envelope`, the headers in `response.crp_headers`, all calls in
            `response.crp_calls` and their total cost in `response.crp_cost` (None if LiteLLM lacks
            a price); `response.usage` is the total usage of all calls; `response.crp_actions` has a
            report on each tool call, with `ground_tools`. With `stream`, a `CRPStream`
            that has the same attributes at its end.

        Raises:
            RequestError: a message or argument has no usable value.
            ConfigError: a header is not in `allow_headers`, or an argument would send CRP metadata.
            ModelNotFound: no group of the list has this name.
            ModelError: no deployment answered; `tried` lists the models; the window is sealed. It
                is also an instance of LiteLLM's class, such as `litellm.RateLimitError`.
            SafetyHalt: the answer, or its tool calls, are withheld; the window is sealed.
        """
        if kwargs.get("n") not in (None, 1):
            raise RequestError(f"n is {kwargs['n']}; one answer is examined, so ask for one")
        if not isinstance(model, str):
            raise RequestError(f"model is {type(model).__name__}, wanted the name of a group")
        named = _pop_fields(kwargs, (*_NAMED, *_JUDGING))
        refuse_question_fields(kwargs)
        for name in ARGUMENTS:
            refuse_unlisted(kwargs.get(name), self._allowed)
        refuse_metadata(kwargs)
        question = question_of(messages)
        more = question_fields(crp)
        for name in named:
            if more.get(name) is not None:
                raise RequestError(f"{name} is given twice, once in crp; give it once")
        tools = tools_of(kwargs)
        if self._gate is not None:
            self._gate.require(tools)
        # At each call, since an application may have replaced the list of callbacks.
        install_hook()
        judging, actions = {**self._judging, **named, **more}, dict[str, Any]()
        conversation = conversation_of(messages)
        check = partial(self._checked_calls, conversation, tools, judging, actions)
        played = self._relay.play(
            question.question,
            check_calls=check if self._gate is not None else None,
            **{
                **self._judging,
                **named,
                **more,
                "model": first_model(self.router, model),
                "system_prompt": question.system,
                "history": question.history,
                "results": question.results,
                "max_tokens": kwargs.get("max_completion_tokens") or kwargs.get("max_tokens"),
                "temperature": kwargs.get("temperature"),
                "seed": kwargs.get("seed"),
                "tools": tools,
            },
        )
        if kwargs.get("tools"):
            kwargs = {**plain_tools(), **kwargs}
        deployments = Deployments(self.router, model, kwargs, streams=stream)
        turn, spent = deployments.watched(played), deployments.spent
        if stream:
            asked = kwargs.get("stream_options") or {}
            # Calls that may be withheld are not shown before they are checked.
            held = self._gate is not None and self._gate.stops and bool(tools)
            shows = (lambda: False) if held else turn.show_at_once
            parts = adrive_stream(turn, deployments, shows=shows)
            return await CRPStream.opened(
                parts, spent, actions, tells_usage=bool(asked.get("include_usage"))
            )
        answer = steps.answer_of(await adrive(turn, deployments))
        return proven_response(answer, spent, {**proof_of(answer, spent), **actions})

    def _checked_calls(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        asking: Mapping[str, Any],
        actions: dict[str, Any],
        reply: Reply,
        envelope: Envelope,
        session_id: str,
    ) -> CheckedCalls:
        """Check the tool calls of an answer; the reports become a field of the response."""
        gate, calls = self._gate, reply.tool_calls
        if gate is None:
            return CheckedCalls()
        entries = gate.check(
            calls, messages, tools, asking, envelope=envelope, session_id=session_id
        )
        if entries:
            actions[ACTIONS_KEY] = entries
        refused = (
            _problem_of(call, entries)
            for call in calls
            if gate.refusal(entries, call.name, call.arguments)
        )
        return CheckedCalls(next(refused, ""), tuple(gate.notes(entries)))

    def completion(self, model: str, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> Any:
        """The synchronous twin of `acompletion`, which it runs in a separate event loop.

        LiteLLM's own synchronous path does not call the hook that packs each attempt.

        Raises:
            RequestError: it is called inside a call of a router, which it would block.
        """
        with context_value(FUNCTION_CALLBACKS, tuple(kwargs.get("success_callback") or ())):
            return run_blocking(self.acompletion(model, messages, **kwargs))


def _pop_fields(kwargs: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Remove fields of a question from LiteLLM's arguments and return them."""
    fields = {name: kwargs.pop(name, None) for name in names}
    return {name: value for name, value in fields.items() if value is not None}


def _problem_of(call: ToolCall, entries: Sequence[Mapping[str, Any]]) -> str:
    """The tool and the paths of the arguments that stop a call, without their text."""
    hashed = call_hash(call.name, call.arguments)
    checked = next((entry["arguments"] for entry in entries if entry["call_hash"] == hashed), ())
    paths = [argument["path"] for argument in checked if argument["status"] not in RIGHT]
    return " ".join(printable(part[:SHOWN_VALUE]) for part in (call.name, *paths[:SHOWN_ARGUMENTS]))


def _entry(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Copy an entry of a model list; `extractive` gets a provider prefix, which LiteLLM needs."""
    entry = dict(listed)
    params = entry.get("litellm_params") or {}
    if params.get("model") == EXTRACTIVE:
        entry["litellm_params"] = {**params, "model": f"{EXTRACTIVE}/best"}
    return entry
