"""Numbers and permissions of dispatching: re-dispatch, continuation, strategies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from crp_integrations.records import Part


class DispatchSettings(Part):
    """What a relay may do by itself beyond one model call.

    Attributes:
        redispatches: most re-dispatches of one window (CRP-SPEC-005 §19.2).
        redispatch_on_repetition, redispatch_on_flow: permit a re-dispatch that a policy without
            `upgrade-on-risk` does not (decision D11).
        continue_partial: continue a PARTIAL answer too; an INCOMPLETE one is continued while
            windows remain (CRP-SPEC-005 §10.3, decision D17).
        continue_incomplete: continue INCOMPLETE answers at all.
        flow: remedy of a continuation that does not read on: `augment` asks again where it may
            and stitches where it may not, `stitch` always stitches, `none` reports alone
            (CRP-SPEC-005 §11.5).
        pull_k: candidates of the pull strategy (related facts §7).
        draft_temperature: of a first pass whose request names none (CRP-SPEC-005 §19.2).
        verify_temperature, refine_temperature: of the reflexive passes (related facts §7).
        agentic_iterations, agentic_tool_calls: most of one agentic answer (related facts §7).
        agentic_completion: completeness at which an agentic answer is done, [0, 1].
        agentic_floor: safety budget at which an agentic answer ends, [0, 1].
        hierarchical_parts: most sub-queries that are answered one by one.
        batch_size: most questions of one batch.
        searched_characters: of an envelope's facts that are searched for personal data, those of
            the first ones; the report counts the others (CRP-SPEC-003 §16.1).
    """

    redispatches: int = Field(default=2, ge=0, le=2)
    redispatch_on_repetition: bool = False
    redispatch_on_flow: bool = False
    continue_partial: bool = False
    continue_incomplete: bool = True
    flow: Literal["augment", "stitch", "none"] = "augment"
    pull_k: int = Field(default=100, ge=1)
    draft_temperature: float = Field(default=0.7, ge=0.0)
    verify_temperature: float = Field(default=0.2, ge=0.0)
    refine_temperature: float = Field(default=0.3, ge=0.0)
    agentic_iterations: int = Field(default=8, ge=1)
    agentic_tool_calls: int = Field(default=10, ge=0)
    agentic_completion: float = Field(default=0.85, ge=0.0, le=1.0)
    agentic_floor: float = Field(default=0.10, ge=0.0, le=1.0)
    hierarchical_parts: int = Field(default=8, ge=1)
    batch_size: int = Field(default=100, ge=1)
    searched_characters: int = Field(default=20_000, ge=0)
