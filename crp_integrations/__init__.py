"""Context Relay Protocol for agent stacks: what a model saw, why, and whether its answer holds.

`Relay` is the whole path over a store; `pack`, `examine`, `compact` and `count_tokens` need none.
Names load when they are first used, so importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crp_integrations.dpe.records import Report
    from crp_integrations.envelope.records import Envelope
    from crp_integrations.errors import CRPError
    from crp_integrations.fabric.records import Fact
    from crp_integrations.messages import Message, Reply
    from crp_integrations.relay.delegation import asked_by, result_of
    from crp_integrations.relay.doors import aexamine, compact, count_tokens, examine, pack
    from crp_integrations.relay.judge import Judge
    from crp_integrations.relay.question_fields import from_headers
    from crp_integrations.relay.records import Answer, Request, TokenCount
    from crp_integrations.relay.relay import Relay
    from crp_integrations.vocabulary import GroundingMode, SourceKind

__version__ = "0.1.0"

_HOMES = {
    "Answer": "relay.records",
    "CRPError": "errors",
    "Envelope": "envelope.records",
    "Fact": "fabric.records",
    "GroundingMode": "vocabulary",
    "Judge": "relay.judge",
    "Message": "messages",
    "Relay": "relay.relay",
    "Reply": "messages",
    "Report": "dpe.records",
    "Request": "relay.records",
    "SourceKind": "vocabulary",
    "TokenCount": "relay.records",
    "aexamine": "relay.doors",
    "asked_by": "relay.delegation",
    "compact": "relay.doors",
    "count_tokens": "relay.doors",
    "examine": "relay.doors",
    "from_headers": "relay.question_fields",
    "pack": "relay.doors",
    "result_of": "relay.delegation",
}

__all__ = [
    "Answer",
    "CRPError",
    "Envelope",
    "Fact",
    "GroundingMode",
    "Judge",
    "Message",
    "Relay",
    "Reply",
    "Report",
    "Request",
    "SourceKind",
    "TokenCount",
    "aexamine",
    "asked_by",
    "compact",
    "count_tokens",
    "examine",
    "from_headers",
    "pack",
    "result_of",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'crp_integrations' has no attribute {name!r}")
    value = getattr(import_module(f"crp_integrations.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
