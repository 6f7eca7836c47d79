"""What session, policy and agents have to say in a response, handed to `render`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.headers.records import RetryAfter, SetSession
from crp_integrations.headers.words import Phase, Retry
from crp_integrations.vocabulary import BudgetWarning, HaltReason, Oversight, Strategy

# What helps after a halt: a person, or another session, since a budget never recovers.
RETRY: Final = MappingProxyType(
    {
        HaltReason.CRITICAL_RISK: Retry.OVERSIGHT,
        HaltReason.UNACCEPTABLE: Retry.OVERSIGHT,
        HaltReason.POLICY: Retry.OVERSIGHT,
        HaltReason.OVERSIGHT: Retry.OVERSIGHT,
        # Nobody has read the answer: a person can, or the judge when it is asked again.
        HaltReason.JUDGE_FAILED: Retry.OVERSIGHT,
        HaltReason.BUDGET_DEPLETED: Retry.NEW_SESSION,
    }
)
_REGION: Final = re.compile("[A-Za-z]{2}", re.ASCII)
_NO_HEADER: Final = frozenset({"halt_reason", "flow_remedy"})


def retry_for(reason: HaltReason | None) -> Retry:
    """What must happen before the caller may ask again.

    Spec: related facts §3
    """
    return RETRY[reason] if reason else Retry.OVERSIGHT


@dataclass(frozen=True, slots=True)
class Passed:
    """What a window's headers say beyond envelope, report and seal; empty or None says nothing.

    Spec: related facts §3

    Attributes:
        policy_applied: the policy in force in its canonical form.
        violation: `inheritance`, or the directives that were violated.
        oversight_mode: in force.
        halt_reason: why the answer is withheld; it has no header of its own.
        retry_after: None takes, for a halted window, what its reason asks for.
        nonce: `base64:…`.
        seed: that the model was given in the end.
        residency: region whose data were read; one whose name has not two letters has no header.
        dispatch_strategy: what a parent agent asked for.
        loop_depth: agents within agents around this window, 0 for the root.
        safety_budget: what is left, in [0, 1].
        tool_calls: in this session.
        session_parent: session of the agent that delegated.
        revision_round: this round and all, `2/3`.
        dag_root: a token such as the root window's id.
        lineage: ids of the windows from the root to this one.
        report_uri, trail_uri: an absolute URI, or a path on the gateway.
        trail_id: `crp_trail_…`.
        set_session: the token for the next window.
        flow_remedy: the remedy of a broken flow that was used: `prompt-augmented`, `stitched` or
            `re-dispatched`; it stands in `CRP-Quality-Flow`.
    """

    policy_applied: str = ""
    violation: tuple[str, ...] = ()
    oversight_mode: Oversight | None = None
    halt_reason: HaltReason | None = None
    retry_after: RetryAfter | None = None
    nonce: str = ""
    seed: int | None = None
    residency: str = ""
    dispatch_strategy: Strategy | None = None
    phase: Phase | None = None
    loop_depth: int | None = None
    safety_budget: float | None = None
    budget_warning: BudgetWarning | str | None = None
    tool_calls: int | None = None
    session_parent: str = ""
    revision_round: tuple[int, int] | None = None
    dag_root: str = ""
    lineage: tuple[str, ...] = ()
    report_uri: str = ""
    trail_id: str = ""
    trail_uri: str = ""
    set_session: SetSession | None = None
    flow_remedy: str = ""

    def said(self, *, halted: bool) -> dict[str, Any]:
        """The fields of `ResponseHeaders` that have something to say.

        Args:
            halted: whether the window's answer is withheld, so that a caller must be told what to
                wait for.
        """
        told = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in _NO_HEADER and getattr(self, field.name) not in (None, "", ())
        }
        if not _REGION.fullmatch(self.residency):
            told.pop("residency", None)
        if halted and self.retry_after is None:
            told["retry_after"] = retry_for(self.halt_reason)
        return told
