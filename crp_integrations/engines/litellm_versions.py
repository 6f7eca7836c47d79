"""LiteLLM by what it offers: the one module that knows its versions and its errors.

Each function asks for the capability and not for the number of a version. A router of 1.109 and
newer answers through its entry points, `registry()` and `settings()`; an older one has members of
the same content, which the newer one deprecates and will drop. Members that LiteLLM spells with an
underscore, and has no public name for, are touched here and nowhere else.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from crp_integrations.errors import (
    CRPError,
    EngineError,
    MissingExtra,
    ModelAuthError,
    ModelContextExceeded,
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
    provider_error,
    provider_refusal,
)

_PROXY: Final = "litellm.proxy.proxy_server"
# Raised by LiteLLM's native runtime (1.109 and newer) in a process that it cannot work in.
_FORKED: Final = frozenset({"ForkedAfterNativeRuntimeStarted", "ProcessReservedForForking"})
# What failed while a stream was read is wrapped in it.
_MID_STREAM: Final = "MidStreamFallbackError"
_NO_CHOICE: Final = "returned a response with no 'choices'"


def library(purpose: str = "asking a model") -> ModuleType:
    """LiteLLM, imported without its start-up download and without its printed hints."""
    # Else the import fetches a price list from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import litellm
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        raise MissingExtra("litellm", purpose) from error

    litellm.suppress_debug_info = True
    if hasattr(litellm, "telemetry"):  # versions that still send usage statistics
        litellm.telemetry = False
    return litellm


# --- a router --------------------------------------------------------------------------------


def entries_of(router: Any, group: str) -> Sequence[Mapping[str, Any]]:
    """The deployments that serve a group, an alias or a name under a wildcard; empty for none."""
    if hasattr(router, "registry"):
        return tuple(router.registry().deployments(group) or ())
    return tuple(router.get_model_list(model_name=group) or ())


def groups_of(router: Any) -> list[str]:
    """The names that a router can be asked for, sorted, each once."""
    names = router.registry().names() if hasattr(router, "registry") else router.get_model_names()
    return sorted(set(names))


def fallbacks_of(router: Any) -> Sequence[Any]:
    """The fallbacks that a router was made with."""
    return getattr(_settings(router), "fallbacks", None) or ()


def retries_of(router: Any) -> int:
    """How often a router tries a failed call again, where the call does not say it."""
    # An attribute in every version: `settings()` has no field of the name.
    return int(getattr(router, "num_retries", None) or 0)


def checks_before_calls(router: Any) -> bool:
    """Whether a router leaves out deployments that the messages do not fit."""
    return bool(getattr(_settings(router), "enable_pre_call_checks", False))


def _settings(router: Any) -> Any:
    return router.settings() if hasattr(router, "settings") else router


def proxy_router() -> Any:
    """The router of the proxy that runs in this process, None without one."""
    return getattr(sys.modules.get(_PROXY), "llm_router", None)


# --- calls -----------------------------------------------------------------------------------


def plain_tools() -> dict[str, Any]:
    """The argument that keeps LiteLLM from looking for MCP servers among a call's tools.

    It imports the optional package `mcp` for that, and fails where it is not installed; our
    tools are plain ones. A version without that step would send the switch to the provider, so
    there the answer is empty.
    """
    folder = Path(str(library().__file__)).parent
    present = (folder / "responses" / "mcp" / "chat_completions_handler.py").is_file()
    return {"_skip_mcp_handler": True} if present else {}


def register_provider(name: str, handler: Any) -> bool:
    """Make models named `NAME/…` callable by a handler; again has no effect."""
    litellm: Any = library()
    known = [item for item in litellm.custom_provider_map if item["provider"] == name]
    if any(item["custom_handler"] is not handler for item in known):
        return False
    if not known:
        litellm.custom_provider_map = [
            *litellm.custom_provider_map,
            {"provider": name, "custom_handler": handler},
        ]
    # LiteLLM does this in its own calls too, but name lookup needs it before the first.
    litellm.utils.custom_llm_setup()
    return True


def callback_lists() -> tuple[list[Any], ...]:
    """The lists through which LiteLLM calls a callback at a call's begin and at its answer.

    LiteLLM copies `callbacks` into the others at each call, but only while these have fewer than 30
    entries, of which every router of the process takes one; its public ways to add one stop there
    as well.
    """
    litellm: Any = library()
    lists = (litellm.callbacks, litellm.input_callback, litellm.success_callback)
    others = getattr(litellm, "_async_success_callback", None)
    return lists if others is None else (*lists, others)


# --- responses -------------------------------------------------------------------------------


def notes_of(response: Any) -> dict[str, Any]:
    """What LiteLLM notes of a response beside its fields: deployment, cost, model."""
    notes = getattr(response, "_hidden_params", None)
    if notes is None:
        return {}
    return dict(notes) if isinstance(notes, Mapping) else dict(vars(notes))


def note(response: Any, notes: Mapping[str, Any]) -> None:
    """Replace what LiteLLM noted of a response."""
    response._hidden_params = dict(notes)


def ended(stream: Any) -> bool:
    """Whether the provider ended a stream; LiteLLM adds a finish of its own to one that stops.

    A router's stream wraps the provider's and shares only its list of chunks. One that went on
    with another deployment in the middle has no finish there: two halves are no answer.
    """
    for name in ("received_finish_reason", "intermittent_finish_reason"):
        if getattr(stream, name, None):
            return True
    if hasattr(stream, "_async_generator"):
        chunks = getattr(stream, "chunks", None)
        return chunks is None or any(
            chunk.choices and chunk.choices[0].finish_reason for chunk in chunks
        )
    return not hasattr(stream, "received_finish_reason")


async def close_stream(stream: Any) -> None:
    """Let go of a stream that is read no further, and of its connection."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


# --- errors ----------------------------------------------------------------------------------


def forked(error: BaseException) -> bool:
    """Whether a call failed for its process: forked after LiteLLM's native runtime had started."""
    return type(error).__name__ in _FORKED


def without_choice(error: BaseException) -> bool:
    """Whether a call failed since the answer held no choice; most versions let it pass."""
    return _NO_CHOICE in str(error)


def provider_error_of(error: Exception) -> tuple[Exception, bool]:
    """The provider's own error, and whether it came in the middle of a stream.

    A client's stream wraps it; a router's raises it from the wrapper (1.106 and newer), or raises
    the wrapper as well.
    """
    wrapper: BaseException | None = error
    if type(error).__name__ != _MID_STREAM:
        wrapper = error.__cause__
        if (
            type(wrapper).__name__ != _MID_STREAM
            or getattr(wrapper, "original_exception", None) is not error
        ):
            return error, False
    own = getattr(wrapper, "original_exception", None)
    begun = not getattr(wrapper, "is_pre_first_chunk", False)
    return (own if isinstance(own, Exception) else error), begun


# By class name, looked up along an error's bases from the most special on: a version of
# LiteLLM that lacks one of these classes changes nothing for the others.
TABLE: Final = MappingProxyType(
    {
        "AuthenticationError": ModelAuthError,
        "PermissionDeniedError": ModelAuthError,
        "RateLimitError": ModelRateLimited,
        "BudgetExceededError": ModelRateLimited,
        "PaymentRequiredError": ModelRateLimited,
        "ContextWindowExceededError": ModelContextExceeded,
        "Timeout": ModelTimeout,
        "APITimeoutError": ModelTimeout,
        "TimeoutError": ModelTimeout,
        "NotFoundError": ModelNotFound,
        "LiteLLMUnknownProvider": ModelNotFound,
    }
)

# The OpenAI client refuses by itself when it has no key, and LiteLLM calls that status 500.
_NO_KEY: Final = ("Missing credentials", "api_key client option must be set")
# The router's own words for a group whose deployments it has all set aside.
_NONE_FREE: Final = frozenset({"RouterRateLimitError", "RouterRateLimitErrorBasic"})
# Its words, in an error of no class of its own, for one whose budgets are used up.
_BUDGET_SPENT: Final = "crossed budget"
# How LiteLLM lists the arguments that it did not send: `parameters: ['top_k']`.
_LISTED: Final = re.compile(r"does not support parameters: \[([^\]]*)\]")
_NAMED: Final = re.compile(r"'([a-z][a-z_0-9]{0,39})'")
_UNREACHED: Final = frozenset({"ConnectError", "ClientConnectorError", "gaierror"})

_SENTENCES: Final = MappingProxyType(
    {
        ModelRateLimited: "the provider of model {model!r} refused for rate or quota",
        ModelContextExceeded: "the request is longer than the context limit of model {model!r}",
        ModelTimeout: "model {model!r} did not answer in time",
        ModelNotFound: (
            "model {model!r} is not known to its provider; name it as PROVIDER/MODEL, such as "
            "openai/gpt-4o-mini, or use extractive"
        ),
    }
)


def translate(error: Exception, model: str, library: ModuleType) -> CRPError:
    """Our error for one that LiteLLM raised, with the provider's status; our own pass unchanged."""
    if isinstance(error, CRPError):
        return error
    error, begun = provider_error_of(error)
    own = _translated(error, begun, model, library)
    status = getattr(error, "status_code", None)
    if isinstance(own, ModelError) and isinstance(status, int):
        own.provider_status = status
        # LiteLLM wraps the provider's own error, which has the message, in further classes.
        for cause in _causes(error):
            body = getattr(cause, "body", None) or getattr(cause, "message", None)
            headers = getattr(getattr(cause, "response", None), "headers", None) or {}
            own.refusal = own.refusal or provider_refusal(body)
            own.retry_after = own.retry_after or headers.get("retry-after", "")
    return own


def catchable(own: ModelError, error: Exception, model: str, library: ModuleType) -> ModelError:
    """Our error as one that is caught as LiteLLM's too, with the fields of LiteLLM's.

    What LiteLLM has no error for, as a stream that breaks off, is its `APIConnectionError`.
    """
    error = provider_error_of(error)[0]
    if not type(error).__module__.startswith("litellm."):
        error = library.APIConnectionError(message=str(own), llm_provider="", model=model)
    if isinstance(own, type(error)):
        return own
    fields = {**vars(error), **vars(own), "message": str(own)}
    return _restored(type(own), type(error), own.args, fields)


@cache
def _class_of_both(own: type[ModelError], theirs: type[Exception]) -> type[ModelError]:
    names = ("__module__", "__qualname__", "__doc__")
    shown = {"__str__": Exception.__str__, "__repr__": Exception.__repr__, "__reduce__": _reduced}
    return type(own.__name__, (own, theirs), {n: getattr(own, n) for n in names} | shown)


def _restored(
    own: type[ModelError], theirs: type[Exception], args: tuple[Any, ...], fields: dict[str, Any]
) -> ModelError:
    kind: type[ModelError] = _class_of_both(own, theirs)  # type: ignore[arg-type]
    # LiteLLM's constructors take other arguments in each version.
    made = kind.__new__(kind, *args)
    vars(made).update(fields)
    return made


def _reduced(error: ModelError) -> tuple[Any, ...]:
    # A class that is made here cannot be imported by name.
    return _restored, (*type(error).__bases__, error.args, vars(error))


def _translated(error: Exception, begun: bool, model: str, library: ModuleType) -> CRPError:
    if forked(error):
        return EngineError(
            "LiteLLM's native runtime does not work in a process that was forked after it started; "
            "make the first call of a router in the worker, after the fork",
            engine="litellm",
        )
    if without_choice(error):
        return ModelError(f"model {model!r} sent no choice in its answer")
    if type(error).__name__ in _NONE_FREE:
        return ModelRateLimited(
            f"the router has no deployment of model {model!r} to try just now, as after failures; "
            "try again later"
        )
    if _BUDGET_SPENT in str(error):
        return ModelRateLimited(
            f"the router's budget for every deployment of model {model!r} is used up; raise it or "
            "wait for its next period"
        )
    kind = _kind(error)
    if kind is ModelAuthError or any(mark in str(error) for mark in _NO_KEY):
        return ModelAuthError(_credentials(model, library))
    if kind in _SENTENCES:
        return kind(_SENTENCES[kind].format(model=model))
    if begun:
        return ModelError(f"the stream of model {model!r} broke off before its end")
    if any(type(cause).__name__ in _UNREACHED for cause in _causes(error)):
        return ModelError(f"the provider of model {model!r} cannot be reached")
    refused = _refused(error)
    if refused:
        return ModelError(f"model {model!r} takes no {refused}; leave it out, or ask another model")
    status = getattr(error, "status_code", None)
    description = f"status {status}, {type(error).__name__}" if status else type(error).__name__
    if isinstance(error, ImportError) and error.name:
        description += f": {error.name}"
    return ModelError(f"the call to model {model!r} failed ({description})")


def unknown(model: str) -> ModelNotFound:
    """The error for a name from which no provider follows."""
    return ModelNotFound(
        f"no provider is known for model {model!r:.120}; name it as PROVIDER/MODEL, such as "
        "openai/gpt-4o-mini, or use extractive"
    )


def _kind(error: Exception) -> type[ModelError]:
    for base in type(error).__mro__:
        if base.__name__ in TABLE:
            return TABLE[base.__name__]
    return provider_error(getattr(error, "status_code", None))


def _refused(error: Exception) -> str:
    """Names of the arguments that LiteLLM knows a model not to take; nothing else of its words."""
    if type(error).__name__ != "UnsupportedParamsError":
        return ""
    listed = _LISTED.search(str(error))
    return ", ".join(_NAMED.findall(listed[1])) if listed else ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _credentials(model: str, library: ModuleType) -> str:
    missing = library.validate_environment(model).get("missing_keys") or []
    wanted = f"; set {' and '.join(missing)}" if missing else ""
    return f"the provider refused the credentials for model {model!r}{wanted}"
