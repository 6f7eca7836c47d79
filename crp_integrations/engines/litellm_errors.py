"""The table from LiteLLM's errors to ours, and the sentence that each becomes.

A provider's own message may repeat parts of the prompt or of a key, so it is not copied; the
foreign error stays reachable as the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType, ModuleType
from typing import Final

from crp_integrations.engines.litellm_versions import forked, provider_error_of, without_choice
from crp_integrations.errors import (
    CRPError,
    EngineError,
    ModelAuthError,
    ModelContextExceeded,
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
    provider_error,
)

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
    return own


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
    told = f"status {status}, {type(error).__name__}" if status else type(error).__name__
    if isinstance(error, ImportError) and error.name:
        told += f": {error.name}"
    return ModelError(f"the call to model {model!r} failed ({told})")


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
