"""Drafts of events: the allowed fields of each event type, and the format of each field.

Values are ids, hashes, counts and enum values; no field accepts free text. An id or a name chosen
by a caller, operator or model is written unchanged if it looks like one, otherwise as its hash.

Spec: related facts §8
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from crp_integrations.errors import StoreError
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import (
    AgentRole,
    AiActClass,
    ChainIntegrity,
    CompletenessLevel,
    DropReason,
    EventType,
    HaltReason,
    Oversight,
    Pattern,
    PersonalCategory,
    QualityTier,
    RepetitionLevel,
    RiskLevel,
    RotSignal,
    Strategy,
    TransferType,
)

SESSION_FIELD = "session_id"
KEY_FIELD = "key_id"
OUTCOMES = ("released", "failed", "cancelled", "refused", "halted")
# Directives of policies (related facts §6), one of which a violation names.
DIRECTIVES = (
    "default-src", "halt-on", "warn-on", "ask-again-on", "repair-on", "require-grounding",
    "require-entailment", "require-flow", "require-completeness", "require-quality",
    "require-oversight", "oversight",
    "block-ungrounded", "block-parametric", "block-pii", "block-fabrication", "block-distortion",
    "block-repetition",
    "max-repetition", "upgrade-on-risk", "unchecked",
)  # fmt: skip
TRIGGERS = (
    "risk", "flagged", "contradiction", "repetition", "flow", "quality", "grounding", "entailment",
    "fabrication", "distortion", "completeness", "personal-data", "parametric", "source",
)  # fmt: skip
REASONS = ("circuit", "risk", "quality", "accept", "intent", "policy", "budget", "review")
# What the check of a tool call says, and what its component does if the call may not run.
VERDICTS = ("runs", "stopped", "unread")
ACTIONS = ("report", "pause", "return", "withhold")
REMEDIES = ("prompt-augmented", "stitched", "redispatch", "stitch", "none")
# Warning about tiers that fall from window to window (CRP-SPEC-003 §14.3).
WARNINGS = ("quality falls from window to window; the domain may lack depth",)
RECOMMENDED = ("dispatch_hierarchical",)
STOPS = ("halt", "budget", "limit", "complete", "cancelled", "policy", "ended", "erasure")
CAUSES = (
    "put", "ingested", "updated", "ttl", "archived", "restored", "stale", "quarantined", "lifted",
    "deleted", "forgotten", "erasure", "retention", "recluster", "embedder", "findings",
)  # fmt: skip
FACT_FIELDS = (
    "content", "metadata", "importance_weight", "labels", "kind", "ttl", "valid_from", "valid_to",
)  # fmt: skip

# Sections of a context pack.
SECTIONS = ("user", "task", "tools", "knowledge", "memory", "policy")
# Triggers of a compaction, and reasons for dropping or shortening an item.
COMPACTING = ("budget", "items", "tool-call")
LEFT_OUT = (
    "duplicate", "targeted", "irrelevant", "offloaded", "pruned", "summarised", "budget",
)  # fmt: skip
SUMMARY_LEVELS = ("source", "cluster", "session", "targeted")
# Actions on which the guard decides.
ACCESS = ("read", "write", "erase")
ARTIFACT_ACTIONS = ("put", "read", "signed", "opened", "refused", "erased")
ARTIFACT_REFUSALS = ("expired", "replayed", "denied", "unknown", "revoked", "withdrawn")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/@+#=-]{0,159}")
_HASH = re.compile(r"(sha256:[0-9a-f]{64})?")
_HASHES = re.compile(r"(sha256:[0-9a-f]{64}(\|sha256:[0-9a-f]{64})*)?")
_BUDGET = re.compile(r"[01]\.[0-9]{4}")
# Returns the value to write, or raises ValueError with what was wanted, never with the value.
ValueKind: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event before it has a place in the journal, a time and a seal.

    Attributes:
        data: ids, hashes and counts, JSON-like; the journal sets `session_id` and `key_id` in it.
    """

    event_type: EventType
    data: Mapping[str, Any]
    session_id: str = ""
    window_id: str = ""


def check_draft(draft: EventDraft) -> EventDraft:
    """Check that a draft has only fields and values that its event type allows.

    Spec: related facts §5
    """
    for name, place in (("session_id", draft.session_id), ("window_id", draft.window_id)):
        if place and not _NAME.fullmatch(place):
            raise StoreError(f"{name} of event {draft.event_type} does not look like an id")
    kinds = SHAPES[draft.event_type]
    data: dict[str, Any] = {}
    for field, value in draft.data.items():
        kind = kinds.get(field) or _EVERYWHERE.get(field)
        if kind is None:
            wanted = ", ".join(sorted(kinds)) or "nothing"
            raise StoreError(
                f"event {draft.event_type} does not allow field {name_or_hash(field)!r}; "
                f"it may have {wanted}"
            )
        try:
            data[field] = kind(value)
        except ValueError as error:
            raise StoreError(
                f"{field} of event {draft.event_type} is an invalid {type(value).__name__}; "
                f"wanted {error}"
            ) from None
    return EventDraft(draft.event_type, data, draft.session_id, draft.window_id)


def non_empty(**fields: Any) -> Mapping[str, Any]:
    """The fields that are not None and not empty."""
    return {name: value for name, value in fields.items() if value not in (None, "", [])}


def name_or_hash(name: str) -> str:
    """Return an id or a name unchanged if it looks like one, else its hash.

    >>> name_or_hash("gpt-4o-mini"), name_or_hash("ignore all rules")[:11]
    ('gpt-4o-mini', 'sha256:0d15')
    """
    return name if _NAME.fullmatch(name) else sha256(name.encode("utf-8", "surrogatepass"))


# --- formats of values -----------------------------------------------------------------


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("an id or a name")
    return name_or_hash(value)


def _hash(value: Any) -> str:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ValueError("sha256: and 64 hexadecimal digits, or nothing")
    return value


def _hashes(value: Any) -> str:
    if not isinstance(value, str) or not _HASHES.fullmatch(value):
        raise ValueError("HMACs joined with |")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("an integer of at least 0")
    return value


def _fraction(value: Any) -> float | str:
    if isinstance(value, str) and _BUDGET.fullmatch(value):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number within 0 and 1")
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise ValueError("a number within 0 and 1")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _word(*lists: Iterable[str] | type[StrEnum], empty: bool = False) -> ValueKind:
    allowed = frozenset(str(word) for words in lists for word in words) | ({""} if empty else set())

    def word(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"one of {', '.join(sorted(allowed))}")
        return str(value)

    return word


def _many(kind: ValueKind) -> ValueKind:
    def many(value: Any) -> list[Any]:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise ValueError("a list")
        return [kind(item) for item in value]

    return many


def _either(*kinds: ValueKind) -> ValueKind:
    def either(value: Any) -> Any:
        wanted = []
        for kind in kinds:
            try:
                return kind(value)
            except ValueError as error:
                wanted.append(str(error))
        raise ValueError(", or ".join(wanted))

    return either


_names = _many(_name)
_counts = _many(_count)
_fractions = _many(_fraction)
_risk = _word(RiskLevel, empty=True)
_strategy = _word(Strategy)
# Fields of every event: the journal's own, and those of a window's seal in its last event.
_EVERYWHERE: Mapping[str, ValueKind] = {
    SESSION_FIELD: _name,
    KEY_FIELD: _name,
    "window_hmac": _hash,
    "window_number": _count,
    "outcome": _word(OUTCOMES),
    "etag": _hash,
    "risk_level": _risk,
    "response_hash": _hash,
    "report_hash": _hash,
    "parent_hmac": _hashes,
}
_COUNTED: Mapping[str, ValueKind] = {"count": _count}
SHAPES: Mapping[EventType, Mapping[str, ValueKind]] = {
    EventType.SESSION_CREATED: {
        "policy_hash": _hash, "parent_session": _name, "loop_depth": _count, "agent": _name,
        "safety_budget": _fraction,
    },
    EventType.SESSION_CONTINUED: {
        "parents": _names, "pattern": _word(Pattern), "transfer": _word(TransferType),
        "tokens": _count, "summary_hash": _hash, "safety_budget": _fraction, "outdated": _names,
    },
    EventType.SESSION_TERMINATED: {
        "reason": _word(STOPS, HaltReason), "windows": _count, "safety_budget": _fraction,
        "cause": _word(CAUSES),
    },
    EventType.DISPATCH_STARTED: {
        "model": _name, "strategy": _strategy, "attempt": _count, "invocation_hash": _hash,
        # For each of the four steps: items before and after, tokens before and after.
        "write": _counts, "select": _counts, "compress": _counts, "isolate": _counts,
    },
    EventType.DISPATCH_COMPLETED: {
        "tokens": _count, "model": _name, "prompt_tokens": _count, "completion_tokens": _count,
        "cost_microusd": _count,
    },
    EventType.DISPATCH_FAILED: {"error": _name},
    EventType.RE_DISPATCH: {
        "attempt": _count, "triggers": _many(_word(TRIGGERS, DIRECTIVES)), "strategy": _strategy,
    },
    EventType.ANSWER_REPAIRED: {
        "edits": _count, "unrepaired": _count, "response_hash": _hash, "report_hash": _hash,
        "edits_hash": _hash,
    },
    EventType.STRATEGY_UPGRADE: {
        "before": _strategy, "to": _strategy, "why": _word(REASONS, TRIGGERS),
    },
    EventType.DPE_COMPLETED: {
        "quality_tier": _word(QualityTier), "claims": _count, "warning": _word(WARNINGS),
        "recommended": _word(RECOMMENDED), "tiers": _many(_word(QualityTier)),
    },
    EventType.FABRICATION_DETECTED: _COUNTED,
    EventType.DISTORTION_DETECTED: _COUNTED,
    EventType.CONTRADICTION_DETECTED: _COUNTED,
    EventType.REPETITION_DETECTED: {**_COUNTED, "level": _word(RepetitionLevel)},
    EventType.COMPLETENESS_GAP: {**_COUNTED, "level": _word(CompletenessLevel)},
    EventType.FLOW_REMEDIATION: {"remedy": _word(REMEDIES), "flow": _fraction},
    EventType.STOP_INJECT: {"reason": _word(STOPS, HaltReason), "iteration": _count},
    EventType.SAFETY_HALT: {"reason": _word(HaltReason)},
    EventType.SAFETY_BUDGET_DEPLETED: {
        "budget": _fraction,
    },
    EventType.OVERSIGHT_TRIGGERED: {
        "mode": _word(Oversight), "reason": _word(HaltReason, REASONS), "approved": _flag,
        "budget": _fraction,
    },
    EventType.POLICY_VIOLATION: {
        "directives": _many(_word(DIRECTIVES)), "policy_hash": _hash, "report_only": _flag,
        "tier": _word(QualityTier),
    },
    EventType.PII_DETECTED: {**_COUNTED, "categories": _many(_word(PersonalCategory))},
    EventType.EU_AI_ACT_CLASSIFIED: {"class": _word(AiActClass)},
    EventType.FACT_RETRIEVED: {
        "state_hash": _hash, "facts": _names, "dropped": _count, "held": _count,
        "decisions": _many(_either(_hash, _name)),
        "sources": _names, "labels": _names, "item_tokens": _counts, "scores": _fractions,
        "budget_tokens": _count, "tokens": _count, "available": _count, "assembly_us": _count,
        "reasons": _many(_word(DropReason)), "reason_counts": _counts, "reason_tokens": _counts,
        "reason_hashes": _many(_hash),
    },
    EventType.FACT_INGESTED: {
        "source": _name, "document_hash": _hash, "content_hash": _hash, "count": _count,
        "facts": _names, "changed": _names, "active_again": _names, "stale": _names,
        "relabelled": _names, "fields": _many(_word(FACT_FIELDS)), "signer": _name,
        "summary_hash": _hash,
    },
    EventType.FACT_DELETED: {
        "source": _name, "facts": _names, "count": _count, "cause": _word(CAUSES),
    },
    EventType.FACT_QUARANTINED: {
        "source": _name, "facts": _names, "count": _count, "cause": _word(CAUSES),
    },
    EventType.CKF_ETAG_CHANGED: {
        "before": _hash, "after": _hash, "cause": _word(CAUSES), "epoch": _count,
        "embedder": _name, "communities": _count, "changed": _count, "count": _count,
        "facts": _names,
    },
    EventType.TOOL_CALL: {
        "tool": _hash, "arguments_hash": _hash, "result_hash": _hash, "number": _count,
        "failed": _flag,
    },
    EventType.ACTION_CHECKED: {
        "arguments_hash": _hash, "report_hash": _hash, "verdict": _word(VERDICTS),
        "action": _word(ACTIONS),
    },
    EventType.AGENT_LOOP_ITERATION: {
        "iteration": _count, "tool_calls": _count, "completeness": _fraction,
        "budget": _fraction, "loop_depth": _count,
    },
    EventType.FAN_OUT_CREATED: {
        "parents": _names, "children": _either(_count, _names), "budget": _fraction,
    },
    EventType.FAN_IN_MERGED: {"parents": _names, "budget": _fraction},
    EventType.COMPLETENESS_CONTINUATION: {
        "of": _name, "uncovered": _count, "completeness": _fraction,
        "level": _word(CompletenessLevel), "continuation": _count,
    },
    EventType.FLOW_STITCH: {
        "of": _name, "stitch_hash": _hash, "flow": _fraction, "remedy": _word(REMEDIES),
    },
    EventType.CONTEXT_COMPACTED: {
        "triggers": _many(_word(COMPACTING)), "before": _count, "after": _count,
        "budget": _count, "fits": _flag, "artifacts": _names,
    },
    EventType.CONTEXT_DROPPED: {
        "report": _name, "reason": _word(LEFT_OUT), "items": _names, "tokens": _count,
    },
    EventType.SUMMARY_WRITTEN: {
        "summary": _name, "level": _word(SUMMARY_LEVELS), "content_hash": _hash,
        "signer": _name, "method": _name, "items": _names,
    },
    EventType.CONTEXT_PACKED: {
        "pack": _name, "shown_hash": _hash, "items": _names, "item_hashes": _many(_hash),
        "sections": _many(_word(SECTIONS)), "item_counts": _counts, "section_tokens": _counts,
        "budget": _count, "tokens": _count, "decisions": _names, "minimal": _flag,
        "reports": _names,
    },
    EventType.ARTIFACT_ACCESS: {
        "artifacts": _names, "action": _word(ARTIFACT_ACTIONS), "reason": _word(ARTIFACT_REFUSALS),
        "subject": _name, "nonce": _name, "count": _count,
    },
    EventType.ROLE_HANDOVER: {
        "run": _name, "number": _count, "giver": _word(AgentRole), "taker": _word(AgentRole),
        "record": _name, "record_hash": _hash, "items": _names, "tokens": _count,
        "decisions": _names, "allowed": _flag, "signals": _many(_word(RotSignal)),
    },
    EventType.EXCEPTION_USED: {
        "exception": _name, "subject": _name, "action": _word(ACCESS), "labels": _names,
        "decisions": _names,
    },
    EventType.SUB_AGENT_RESULT: {
        "session": _name, "chain_tip": _hash, "budget": _fraction, "agent": _name,
        "integrity": _word(ChainIntegrity), "quality_score": _fraction,
        "loop_depth": _count, "cost": _fraction,
    },
}  # fmt: skip


def draft_session_created(
    session_id: str,
    window_id: str,
    *,
    policy_hash: str = "",
    parent_session: str = "",
    loop_depth: int = 0,
    agent: str = "",
) -> EventDraft:
    """The draft of the event that a session began with its first window."""
    data = non_empty(
        policy_hash=policy_hash,
        parent_session=parent_session,
        loop_depth=loop_depth or None,
        agent=agent,
    )
    return EventDraft(EventType.SESSION_CREATED, data, session_id, window_id)


def draft_budget_depleted(session_id: str, window_id: str, *, budget: float) -> EventDraft:
    """The draft of the event that a session's safety budget is exhausted."""
    return EventDraft(EventType.SAFETY_BUDGET_DEPLETED, {"budget": budget}, session_id, window_id)


def draft_budget_reset(session_id: str, window_id: str, *, budget: float) -> EventDraft:
    """The draft of the event that a person reviewed a session and reset its safety budget."""
    data = {"approved": True, "budget": budget}
    return EventDraft(EventType.OVERSIGHT_TRIGGERED, data, session_id, window_id)


def draft_sub_agent_returned(
    session_id: str,
    window_id: str,
    *,
    session: str,
    chain_tip: str,
    budget: float,
    risk_level: RiskLevel | None = None,
    integrity: ChainIntegrity | None = None,
    quality_score: float | None = None,
    cost: float | None = None,
) -> EventDraft:
    """The draft of the event that a sub-agent has answered."""
    data = non_empty(
        session=session,
        chain_tip=chain_tip,
        budget=budget,
        risk_level=risk_level,
        integrity=integrity,
        quality_score=quality_score,
        cost=cost,
    )
    return EventDraft(EventType.SUB_AGENT_RESULT, data, session_id, window_id)
