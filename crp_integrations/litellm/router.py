"""`CRPRouter`: a LiteLLM router, an envelope for every attempt, a verdict on every answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from crp_integrations.adapters.arguments import check_relay, check_values
from crp_integrations.adapters.conversations import question_of
from crp_integrations.engines.extractive import EXTRACTIVE
from crp_integrations.engines.litellm import (
    ARGUMENTS,
    refuse_crp,
    refuse_unlisted,
    register_extractive,
)
from crp_integrations.engines.litellm_versions import library, plain_tools
from crp_integrations.errors import RequestError
from crp_integrations.litellm.attempt_packing import (
    check_entries,
    first_model,
    install_hook,
    question_fields,
    refuse_metadata,
    refuse_question_fields,
    tools_of,
)
from crp_integrations.litellm.deployments import (
    Deployments,
    make_in_loop,
    run_blocking,
)
from crp_integrations.litellm.response_metadata import CRPStream, proof_of, proven_response
from crp_integrations.relay import steps
from crp_integrations.relay.drive import adrive, adrive_live
from crp_integrations.relay.judge import JUDGE_OPTIONS
from crp_integrations.relay.relay import Relay

litellm = library()

# Fields of a question that stand beside LiteLLM's arguments.
_JUDGING: Final = ("judge", *JUDGE_OPTIONS)
_NAMED: Final = ("budget_tokens", "grounding", "session_id", "k")


class CRPRouter:
    """A LiteLLM router over deployments, with the fabric's facts in every call.

    Each attempt gets the envelope packed for its own model: its tokenizer, its window, or the
    `max_input_tokens` of its entry. The answer is examined against the envelope of the attempt
    that answered. `extractive` may stand in the list and needs no key.

    Attributes:
        router: the `litellm.Router` underneath.
    """

    def __init__(
        self,
        model_list: Sequence[Mapping[str, Any]],
        *,
        relay: Relay,
        allow_headers: Sequence[str] = (),
        policy: str | None = None,
        **router_kwargs: Any,
    ) -> None:
        """Make the router.

        Args:
            relay: where the facts come from and the windows are sealed.
            allow_headers: names of HTTP headers that a call may send to its provider.
            policy: of every call; `crp={"policy": …}` of a call tightens it.
            router_kwargs: as `litellm.Router` takes them; and `judge`, `judge_when`,
                `judge_budget`, `judge_mode`, `judge_failure` and `on_report` of every call that
                names none of its own.
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

    def __getattr__(self, name: str) -> Any:
        """What `litellm.Router` has and this one does not; nothing that it calls is checked."""
        # Copying and unpickling ask before there is a router.
        if name.startswith("_") or "router" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r:.80}")
        return getattr(self.router, name)

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

        The last message of the user alone is what the fabric is asked; the others go along as
        they are, system messages in front. What tools answered to the question may follow it.

        Spec: CRP-SPEC-005 §1.2

        Args:
            model: name of a group in the model list.
            messages: OpenAI shape, text alone; the last one is the user's, or a tool's result.
            stream: whether chunks are wanted. They come as the model sends them, and after the
                verdict where the answer may be withheld, asked for again or continued.
            crp: fields of a question by the names that `Relay.ask` has for them, such as `policy`,
                `strategy` or `cache`.
            kwargs: LiteLLM's arguments, such as `max_tokens` or `tools`; and `budget_tokens`,
                `grounding`, `session_id`, `k`, `judge`, `judge_when`, `judge_budget`, `judge_mode`,
                `judge_failure` and `on_report`, as in `crp`.

        Returns:
            LiteLLM's response with the report in `response.crp`, the envelope in
            `response.crp_envelope`, the headers in `response.crp_headers`, every call in
            `response.crp_calls` and the cost of all of them in `response.crp_cost`, None where
            LiteLLM has no price; `response.usage` is that of all calls. A `CRPStream` with the
            same at its end when `stream` is set.

        Raises:
            RequestError: a message or argument has no usable value.
            ConfigError: a header is not on the list, or would send CRP metadata to a provider.
            ModelNotFound: no group of the list has this name.
            ModelError: no deployment answered; `tried` has the models; the window is sealed. It is
                an instance of LiteLLM's class too, such as `litellm.RateLimitError`.
            SafetyHalt: the answer is withheld; the window is sealed.
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
        # Each time, since an application may have set its own list of callbacks since.
        install_hook()
        played = self._relay.play(
            question.question,
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
                "tools": tools_of(kwargs),
            },
        )
        if kwargs.get("tools"):
            kwargs = {**plain_tools(), **kwargs}
        deployments = Deployments(self.router, model, kwargs, streams=stream)
        turn, spent = deployments.watched(played), deployments.spent
        if stream:
            asked = kwargs.get("stream_options") or {}
            parts = adrive_live(turn, deployments)
            return await CRPStream.opened(
                parts, spent, tells_usage=bool(asked.get("include_usage"))
            )
        answer = steps.answer_of(await adrive(turn, deployments))
        return proven_response(answer, spent, proof_of(answer, spent))

    def completion(self, model: str, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> Any:
        """The synchronous twin of `acompletion`; it drives that one in a loop of its own.

        LiteLLM's own synchronous path never asks what an attempt should carry.

        Raises:
            RequestError: it is called from within a call of a router, which it would block.
        """
        return run_blocking(self.acompletion(model, messages, **kwargs))


def _pop_fields(kwargs: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The fields of a question among LiteLLM's arguments, taken out of them."""
    fields = {name: kwargs.pop(name, None) for name in names}
    return {name: value for name, value in fields.items() if value is not None}


def _entry(listed: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of a model list, in which LiteLLM knows no model without a provider's name."""
    entry = dict(listed)
    params = entry.get("litellm_params") or {}
    if params.get("model") == EXTRACTIVE:
        entry["litellm_params"] = {**params, "model": f"{EXTRACTIVE}/best"}
    return entry
