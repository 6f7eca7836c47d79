"""Errors of the frameworks' model clients as errors of this package."""

from __future__ import annotations

from crp_integrations.errors import ModelError, ModelTimeout, provider_error


def translated(error: Exception, model: str) -> ModelError:
    """A chat model's error as one of this package; its words, which may quote a prompt, left out.

    Args:
        error: as the chat model raised it.
    """
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    kind = provider_error(status, str(error))
    if isinstance(error, TimeoutError) or type(error).__name__.endswith(
        ("Timeout", "TimeoutError")
    ):
        kind = ModelTimeout
    made = kind(f"the chat model behind {model!r} failed with {type(error).__name__}")
    made.provider_status = status if isinstance(status, int) else None
    made.tried = (model,)
    return made
