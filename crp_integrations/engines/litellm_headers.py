"""Which headers a call may add to a provider's request: those of a list, and none of CRP.

A provider's own client sets what it needs (key, content type, version); this is about headers
that a caller hands in beside those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from crp_integrations.errors import ConfigError

# LiteLLM's names for headers that a call adds.
ARGUMENTS: Final = ("headers", "extra_headers")

# Headers that providers document for their callers, and those that join traces.
PASSED: Final = frozenset(
    {
        "anthropic-beta",
        "anthropic-version",
        "openai-beta",
        "openai-organization",
        "openai-project",
        "x-goog-user-project",
        "http-referer",
        "x-title",
        "idempotency-key",
        "x-request-id",
        "traceparent",
        "tracestate",
    }
)
PREFIX: Final = "crp-"


def refuse_crp(headers: Mapping[str, Any] | None) -> None:
    """Check that nothing of CRP is among the headers for a provider.

    Raises:
        ConfigError: a header is named `CRP-…`.
    """
    for name in headers or {}:
        if _plain(name).startswith(PREFIX):
            raise ConfigError(f"header {name!r:.80} is CRP metadata, which no provider may get")


def refuse_unlisted(headers: Mapping[str, Any] | None, listed: Iterable[str] = ()) -> None:
    """Check that every header of a single call may go to a provider.

    Args:
        listed: names that an operator added to those of `PASSED`, in any case.

    Raises:
        ConfigError: a header is named `CRP-…`, or is not on the list.
    """
    refuse_crp(headers)
    allowed = PASSED | {_plain(name) for name in listed}
    for name in headers or {}:
        if _plain(name) not in allowed:
            raise ConfigError(
                f"header {name!r:.80} is not on the list of those that go to providers; name it "
                "in allow_headers, or in the deployment's entry, to send it"
            )


def _plain(name: object) -> str:
    return str(name).strip().lower()
