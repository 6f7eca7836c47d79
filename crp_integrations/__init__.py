"""Context Relay Protocol for agent stacks: what a model saw, why, and whether its answer holds.

`Relay` runs the whole path over a store; `pack`, `examine`, `compact` and `count_tokens` need no
store. Names load when they are first used, so importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crp_integrations.dpe.actions.records import ActionReport
    from crp_integrations.dpe.records import Report
    from crp_integrations.dpe.rejections import rejected_claims
    from crp_integrations.envelope.records import Envelope
    from crp_integrations.errors import (
        AccessDenied,
        ChainBroken,
        CompactionRefused,
        ConfigError,
        CRPError,
        EngineError,
        EnvelopeUnchanged,
        FactRejected,
        HeaderSyntaxError,
        IllegalTransition,
        IngestError,
        LimitReached,
        MissingExtra,
        ModelAuthError,
        ModelContextExceeded,
        ModelError,
        ModelNotFound,
        ModelRateLimited,
        ModelTimeout,
        NoRelevantFacts,
        PolicyRelaxed,
        PolicySyntaxError,
        QualityUnreachable,
        ReceiptBroken,
        RequestError,
        SafetyHalt,
        StaleTip,
        StoreBusy,
        StoreDamaged,
        StoreError,
        StoreNewer,
        TokenRefused,
        UnknownContinuation,
    )
    from crp_integrations.fabric.records import Fact
    from crp_integrations.messages import Message, Reply
    from crp_integrations.relay.actions import acheck_call, acheck_calls, check_call, check_calls
    from crp_integrations.relay.delegation import asked_by, result_of
    from crp_integrations.relay.judge import Judge
    from crp_integrations.relay.question_fields import from_headers
    from crp_integrations.relay.records import Answer, Request, TokenCount
    from crp_integrations.relay.relay import Relay
    from crp_integrations.relay.storeless_functions import (
        aexamine,
        compact,
        count_tokens,
        examine,
        pack,
    )
    from crp_integrations.vocabulary import GroundingMode, SourceKind

__version__ = "0.2.0"

_HOMES = {
    "AccessDenied": "errors",
    "ActionReport": "dpe.actions.records",
    "Answer": "relay.records",
    "CRPError": "errors",
    "ChainBroken": "errors",
    "CompactionRefused": "errors",
    "ConfigError": "errors",
    "EngineError": "errors",
    "Envelope": "envelope.records",
    "EnvelopeUnchanged": "errors",
    "Fact": "fabric.records",
    "FactRejected": "errors",
    "GroundingMode": "vocabulary",
    "HeaderSyntaxError": "errors",
    "IllegalTransition": "errors",
    "IngestError": "errors",
    "Judge": "relay.judge",
    "LimitReached": "errors",
    "Message": "messages",
    "MissingExtra": "errors",
    "ModelAuthError": "errors",
    "ModelContextExceeded": "errors",
    "ModelError": "errors",
    "ModelNotFound": "errors",
    "ModelRateLimited": "errors",
    "ModelTimeout": "errors",
    "NoRelevantFacts": "errors",
    "PolicyRelaxed": "errors",
    "PolicySyntaxError": "errors",
    "QualityUnreachable": "errors",
    "ReceiptBroken": "errors",
    "Relay": "relay.relay",
    "Reply": "messages",
    "Report": "dpe.records",
    "Request": "relay.records",
    "RequestError": "errors",
    "SafetyHalt": "errors",
    "SourceKind": "vocabulary",
    "StaleTip": "errors",
    "StoreBusy": "errors",
    "StoreDamaged": "errors",
    "StoreError": "errors",
    "StoreNewer": "errors",
    "TokenCount": "relay.records",
    "TokenRefused": "errors",
    "UnknownContinuation": "errors",
    "acheck_call": "relay.actions",
    "acheck_calls": "relay.actions",
    "aexamine": "relay.storeless_functions",
    "asked_by": "relay.delegation",
    "check_call": "relay.actions",
    "check_calls": "relay.actions",
    "compact": "relay.storeless_functions",
    "count_tokens": "relay.storeless_functions",
    "examine": "relay.storeless_functions",
    "from_headers": "relay.question_fields",
    "pack": "relay.storeless_functions",
    "rejected_claims": "dpe.rejections",
    "result_of": "relay.delegation",
}

__all__ = [
    "AccessDenied",
    "ActionReport",
    "Answer",
    "CRPError",
    "ChainBroken",
    "CompactionRefused",
    "ConfigError",
    "EngineError",
    "Envelope",
    "EnvelopeUnchanged",
    "Fact",
    "FactRejected",
    "GroundingMode",
    "HeaderSyntaxError",
    "IllegalTransition",
    "IngestError",
    "Judge",
    "LimitReached",
    "Message",
    "MissingExtra",
    "ModelAuthError",
    "ModelContextExceeded",
    "ModelError",
    "ModelNotFound",
    "ModelRateLimited",
    "ModelTimeout",
    "NoRelevantFacts",
    "PolicyRelaxed",
    "PolicySyntaxError",
    "QualityUnreachable",
    "ReceiptBroken",
    "Relay",
    "Reply",
    "Report",
    "Request",
    "RequestError",
    "SafetyHalt",
    "SourceKind",
    "StaleTip",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreNewer",
    "TokenCount",
    "TokenRefused",
    "UnknownContinuation",
    "acheck_call",
    "acheck_calls",
    "aexamine",
    "asked_by",
    "check_call",
    "check_calls",
    "compact",
    "count_tokens",
    "examine",
    "from_headers",
    "pack",
    "rejected_claims",
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
