"""LiteLLM's versions and errors: the only module that depends on them.

Each function checks for a capability instead of a version number. A router of 1.109 and newer has
the entry points `registry()` and `settings()`; an older one has attributes with the same content,
which the newer one deprecates and will drop. Only this module uses LiteLLM's private members that
have no public name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from inspect import iscoroutinefunction
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
# Raised by LiteLLM's native runtime (1.109 and newer) in a process in which it cannot run.
_FORKED: Final = frozenset({"ForkedAfterNativeRuntimeStarted", "ProcessReservedForForking"})
# LiteLLM wraps errors that occur while a stream is read in this class.
_MID_STREAM: Final = "MidStreamFallbackError"
_NO_CHOICE: Final = "returned a response with no 'choices'"


def library(purpose: str = "asking a model") -> ModuleType:
    """LiteLLM, imported without its start-up download and without its printed hints."""
    # Without this variable the import downloads a price list.
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
    """The deployments of a group, an alias or a name that matches a wildcard; empty for none."""
    if hasattr(router, "registry"):
        return tuple(router.registry().deployments(group) or ())
    return tuple(router.get_model_list(model_name=group) or ())


def groups_of(router: Any) -> list[str]:
    """The model names that a router accepts, sorted, each once."""
    names = router.registry().names() if hasattr(router, "registry") else router.get_model_names()
    return sorted(set(names))


def fallbacks_of(router: Any) -> Sequence[Any]:
    """The fallbacks that a router was made with."""
    return getattr(_settings(router), "fallbacks", None) or ()


def retries_of(router: Any) -> int:
    """How often a router retries a failed call that sets no number of retries itself."""
    # Read as an attribute in every version, since `settings()` does not have this field.
    return int(getattr(router, "num_retries", None) or 0)


def checks_before_calls(router: Any) -> bool:
    """Whether a router skips deployments whose context limit the messages exceed."""
    return bool(getattr(_settings(router), "enable_pre_call_checks", False))


def _settings(router: Any) -> Any:
    return router.settings() if hasattr(router, "settings") else router


def proxy_router() -> Any:
    """The router of the proxy that runs in this process, None without one."""
    return getattr(sys.modules.get(_PROXY), "llm_router", None)


# --- calls -----------------------------------------------------------------------------------


def plain_tools() -> dict[str, Any]:
    """The argument that stops LiteLLM from looking for MCP servers among a call's tools.

    LiteLLM imports the optional package `mcp` for that and fails where it is not installed; the
    tools passed here are plain ones. A version without that step would send the argument to the
    provider, so for it the result is empty.
    """
    folder = Path(str(library().__file__)).parent
    present = (folder / "responses" / "mcp" / "chat_completions_handler.py").is_file()
    return {"_skip_mcp_handler": True} if present else {}


def register_provider(name: str, handler: Any) -> bool:
    """Make models named `NAME/…` callable by a handler; false if another handler has the name."""
    litellm: Any = library()
    known = [item for item in litellm.custom_provider_map if item["provider"] == name]
    if any(item["custom_handler"] is not handler for item in known):
        return False
    if not known:
        litellm.custom_provider_map = [
            *litellm.custom_provider_map,
            {"provider": name, "custom_handler": handler},
        ]
    # LiteLLM does this in its own calls too, but name lookup needs it before the first call.
    litellm.utils.custom_llm_setup()
    return True


def callback_lists() -> tuple[list[Any], ...]:
    """The lists through which LiteLLM calls a callback at the start of a call and at its answer.

    LiteLLM copies `callbacks` into the other lists at each call, but only while these have fewer
    than 30 entries, and every router of the process adds one; its public functions to add a
    callback have the same limit.
    """
    litellm: Any = library()
    lists = (litellm.callbacks, litellm.input_callback, litellm.success_callback)
    others = getattr(litellm, "_async_success_callback", None)
    return lists if others is None else (*lists, others)


def synchronous_callbacks(own: Iterable[Any], event: str, *, streams: bool = False) -> list[Any]:
    """The functions and methods that only LiteLLM's synchronous path calls.

    Args:
        own: callbacks of this call, besides those of the process.
        event: `success` or `failure`.
        streams: whether the answer is a stream.
    """
    from litellm.integrations.custom_logger import CustomLogger

    litellm: Any = library()
    name, failure = f"async_log_{event}_event", event == "failure"
    called = []
    for callback in dict.fromkeys((*own, *getattr(litellm, f"{event}_callback"))):
        if isinstance(callback, CustomLogger):
            # Of a whole answer, a logger without the asynchronous method hears in either path.
            if (streams or failure) and getattr(type(callback), name) is getattr(
                CustomLogger, name
            ):
                called.append(getattr(callback, f"log_{event}_event"))
        # The asynchronous path calls functions for a failure. A router's own method counts its
        # calls, and that path calls its twin.
        elif (
            callable(callback)
            and not failure
            and not iscoroutinefunction(callback)
            and not isinstance(getattr(callback, "__self__", None), litellm.Router)
        ):
            called.append(callback)
    return called


# --- responses -------------------------------------------------------------------------------


def notes_of(response: Any) -> dict[str, Any]:
    """LiteLLM's hidden notes on a response, in addition to its fields: deployment, cost, model."""
    notes = getattr(response, "_hidden_params", None)
    if notes is None:
        return {}
    return dict(notes) if isinstance(notes, Mapping) else dict(vars(notes))


def note(response: Any, notes: Mapping[str, Any]) -> None:
    """Replace LiteLLM's hidden notes on a response."""
    response._hidden_params = dict(notes)


def ended(stream: Any) -> bool:
    """Whether the provider finished a stream; LiteLLM adds a finish itself to one that breaks off.

    A router's stream wraps the provider's and shares only its list of chunks. A stream that
    continued with another deployment has no finish there: two halves do not make an answer.
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
    """Close a stream that is not read any further, and its connection."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


# --- errors ----------------------------------------------------------------------------------


def forked(error: BaseException) -> bool:
    """Whether a call failed because its process was forked after LiteLLM's runtime had started."""
    return type(error).__name__ in _FORKED


def without_choice(error: BaseException) -> bool:
    """Whether a call failed because its answer has no choice; most versions do not raise then."""
    return _NO_CHOICE in str(error)


def provider_error_of(error: Exception) -> tuple[Exception, bool]:
    """The provider's own error, and whether it occurred in the middle of a stream.

    A client's stream raises a wrapper around it; a router's stream raises it from the wrapper
    (1.106 and newer) or also raises the wrapper.
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


# By class name, looked up along an error's bases from the most specific on, so that a version
# of LiteLLM may lack some of these classes.
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

# Messages of the OpenAI client without a key, an error that LiteLLM gives the status 500.
_NO_KEY: Final = ("Missing credentials", "api_key client option must be set")
# Raised by the router when all deployments of a group are cooling down.
_NONE_FREE: Final = frozenset({"RouterRateLimitError", "RouterRateLimitErrorBasic"})
# In the message of the router's error for a used-up budget, which has no class of its own.
_BUDGET_SPENT: Final = "crossed budget"
# How LiteLLM lists arguments that a model does not support: `parameters: ['top_k']`.
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
    """The package's error for one of LiteLLM's, with the provider's status; else unchanged."""
    if isinstance(error, CRPError):
        return error
    error, begun = provider_error_of(error)
    own = _translated(error, begun, model, library)
    status = getattr(error, "status_code", None)
    if isinstance(own, ModelError) and isinstance(status, int):
        own.provider_status = status
        # LiteLLM wraps the provider's error, which has the message, in other exceptions.
        for cause in _causes(error):
            body = getattr(cause, "body", None) or getattr(cause, "message", None)
            headers = getattr(getattr(cause, "response", None), "headers", None) or {}
            own.refusal = own.refusal or provider_refusal(body)
            own.retry_after = own.retry_after or headers.get("retry-after", "")
    return own


def catchable(own: ModelError, error: Exception, model: str, library: ModuleType) -> ModelError:
    """The package's error, made an instance of LiteLLM's error class too, with its fields.

    If LiteLLM has no error for it, as for a stream that breaks off, it is `APIConnectionError`.
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
    shown = {"__repr__": Exception.__repr__, "__reduce__": _reduced}
    return type(own.__name__, (own, theirs), {n: getattr(own, n) for n in names} | shown)


def _restored(
    own: type[ModelError], theirs: type[Exception], args: tuple[Any, ...], fields: dict[str, Any]
) -> ModelError:
    kind: type[ModelError] = _class_of_both(own, theirs)  # type: ignore[arg-type]
    # Without calling a constructor, since LiteLLM's take different arguments in each version.
    made = kind.__new__(kind, *args)
    vars(made).update(fields)
    return made


def _reduced(error: ModelError) -> tuple[Any, ...]:
    # Pickled by its bases, since a class that is made here cannot be imported by name.
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
    """The error for a model name whose provider is not known."""
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
    """Names of the arguments that LiteLLM says a model does not take; empty for other errors."""
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
