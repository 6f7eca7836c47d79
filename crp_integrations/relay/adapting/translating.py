"""Errors of the frameworks' model clients as errors of this package."""

from __future__ import annotations

from typing import Final

from crp_integrations.errors import (
    ModelAuthError,
    ModelContextExceeded,
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
)

# From a provider's HTTP status, which the frameworks' clients put on their errors.
_BY_STATUS: Final[dict[int, type[ModelError]]] = {
    401: ModelAuthError,
    403: ModelAuthError,
    404: ModelNotFound,
    408: ModelTimeout,
    413: ModelContextExceeded,
    429: ModelRateLimited,
    504: ModelTimeout,
}
_CONTEXT: Final = ("context_length_exceeded", "maximum context length", "prompt is too long")


def translated(error: Exception, model: str) -> ModelError:
    """A chat model's error as one of this package; its words, which may quote a prompt, left out.

    Args:
        error: as the chat model raised it.
    """
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    kind = _BY_STATUS.get(status, ModelError) if isinstance(status, int) else ModelError
    if isinstance(error, TimeoutError) or type(error).__name__.endswith(
        ("Timeout", "TimeoutError")
    ):
        kind = ModelTimeout
    elif status in (None, 400) and any(words in str(error).lower() for words in _CONTEXT):
        kind = ModelContextExceeded
    made = kind(f"the chat model behind {model!r} failed with {type(error).__name__}")
    made.provider_status = status if isinstance(status, int) else None
    made.tried = (model,)
    return made
