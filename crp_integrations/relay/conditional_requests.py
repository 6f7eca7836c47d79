"""Decide whether an earlier envelope can be reused for a request (`If-Match`).

Evaluated before Phase 1, since a match makes Phase 1 unnecessary. Of the fabric, only its state
and the facts that would be shown again are read; the guard decides on each of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from crp_integrations.dpe.records import Report
from crp_integrations.dpe.risk import ceiling
from crp_integrations.dpe.settings import QualitySettings
from crp_integrations.envelope.budget import EnvelopeInputs
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.continuation import has_relevant, relevance_floor
from crp_integrations.envelope.records import Cap, Envelope
from crp_integrations.envelope.reuse import (
    ANY_ETAG,
    EnvelopeScope,
    ReuseMatch,
    Validators,
    decomposition_hash,
)
from crp_integrations.errors import NoRelevantFacts
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.view import FabricView
from crp_integrations.headers import names
from crp_integrations.headers.records import CacheOutcome
from crp_integrations.policy.demands import RISKS, halting_demands
from crp_integrations.policy.records import Policy
from crp_integrations.policy.verdict import accepts_tier, exceeds_level
from crp_integrations.relay.records import Request
from crp_integrations.relay.steps import NotModified
from crp_integrations.relay.world import World
from crp_integrations.scores import from_fixed
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import (
    CacheStatus,
    Changed,
    FactStatus,
    Oversight,
    QualityTier,
    RiskLevel,
)


def cap_tier(envelope: Envelope, report: Report, settings: QualitySettings) -> Envelope:
    """Lower an envelope's tier to the maximum that the answer's quality score allows.

    Spec: CRP-SPEC-005 §18.4, CRP-SPEC-003 §8.3 (decision E4)
    """
    allowed, score_bound = ceiling(report.rqa_score, settings)
    tier = envelope.quality_tier.capped(allowed)
    if tier is envelope.quality_tier:
        return envelope
    reason = f"rqa_score {report.rqa_score:.3f} is below {score_bound:.2f}"
    cap = Cap(ceiling=allowed, reason=reason)
    # Skips validation: only a tier and its reason change.
    return envelope.model_copy(update={"quality_tier": tier, "caps": (*envelope.caps, cap)})


def uncapped(envelope: Envelope, tier: QualityTier | None) -> Envelope:
    """Undo `cap_tier`: the cap belongs to one answer, and the envelope may be used for another."""
    if tier is None or tier is envelope.quality_tier:
        return envelope
    return envelope.model_copy(update={"quality_tier": tier, "caps": envelope.caps[:-1]})


class ConditionalRequest:
    """What one request may reuse, and what is remembered after it. Used by one Turn only.

    Spec: CRP-SPEC-003 §5.3, §11

    Attributes:
        selected: whether Phase 1 was skipped.
    """

    def __init__(
        self, request: Request, session_id: str, namespace: Namespace, world: World
    ) -> None:
        self._request = request
        self._namespace = namespace
        self._known = world.memory.envelopes
        self._settings = world.settings.envelope
        self._settings_digest = world.settings_digest
        self._judge = world.engines.judge.identity if world.engines.judge else ""
        subject = namespace.subject
        self._scope = EnvelopeScope(subject.tenant, subject.name, namespace.residency, session_id)
        self._prompt = _prompt_hash(request)
        self.match = ReuseMatch()
        self.selected = False

    def validators(
        self,
        view: FabricView,
        request: Request,
        *,
        policy: str,
        packed_for: tuple[str, str, int],
        needs: Sequence[str],
        state_hash: str | None = None,
    ) -> Validators:
        """What an envelope for the admitted request depends on.

        Args:
            packed_for: model, its tokenizer and the budget in tokens.
        """
        settings = self._settings
        model, tokenizer, budget_tokens = packed_for
        return Validators(
            state_hash=view.state_hash() if state_hash is None else state_hash,
            readable=view.size(),
            decomposition=decomposition_hash(request.query, needs),
            embedder=view.embedder.identity,
            model=model,
            tokenizer=tokenizer,
            budget_tokens=budget_tokens,
            settings_digest=self._settings_digest,
            grounding=request.grounding,
            strategy=request.strategy,
            guard=self._namespace.guard_name,
            policy=policy,
            k=request.k,
            max_age_seconds=request.cache.max_age_seconds,
            packing=settings.packing,
            layout=f"{settings.layout}/{settings.ordering}",
            prompt=self._prompt,
            prior=_prior_hash(request),
            automatic=request.asked_budget(settings) == "auto",
            judge=self._judge,
        )

    def evaluate(self, view: FabricView, validators: Validators, now: datetime) -> ReuseMatch:
        """Match the request against the known envelopes.

        Spec: CRP-SPEC-003 §11.4
        """
        match = self.match = self._matched(view, validators, now, self._request.if_match)
        known = match.known
        if match.status is CacheStatus.HIT and known and known.candidates is not None:
            self.require_relevant(known.candidates, view)
        return match

    def recall(self, view: FabricView, validators: Validators, now: datetime) -> None:
        """Reuse the candidates of an agent's earlier step without being conditional."""
        self.match = ReuseMatch(known=self._matched(view, validators, now, ANY_ETAG).known)

    def _matched(
        self, view: FabricView, validators: Validators, now: datetime, if_match: str
    ) -> ReuseMatch:
        match = self._known.match(
            self._scope,
            if_match,
            validators,
            now,
            no_cache=self._request.cache.no_cache,
            holds=bool(view.held()),
        )
        known = match.known
        if known is not None and known.candidates is not None:
            texts = {
                fact.fact_id: fact.content_hash or sha256(fact.content)
                for fact in known.candidates.facts
            }
            facts = view.briefs(list(texts))
            current = {fact.fact_id: sha256(fact.content) for fact in facts}
            stale = {fact.fact_id for fact in facts if fact.status is FactStatus.STALE}
            # With the same state of the fabric a status differs only where a ttl has run out.
            if stale != {fact.fact_id for fact in known.candidates.facts if fact.stale}:
                match = ReuseMatch(CacheStatus.MISS, (Changed.FACTS,))
            # A guard may now decide otherwise on a fact while the number of facts is the same, or
            # redact personal data in it.
            if current != texts:
                match = ReuseMatch(CacheStatus.MISS, (Changed.ACCESS,))
        return match

    def require_relevant(self, candidates: Candidates, view: FabricView) -> None:
        """Under `only-if-ckf`, raise if the fabric contains no fact relevant to the question.

        Spec: CRP-SPEC-009 §7.1
        """
        if not self._request.cache.only_if_ckf:
            return
        settings = self._settings
        if not has_relevant(candidates, settings, aside=set(view.held())):
            floor = from_fixed(relevance_floor(candidates, settings))
            raise NoRelevantFacts(
                f"no fact of the fabric has a relevance of at least {floor:.2f} to the question, "
                "and only-if-ckf accepts nothing else",
                directive="only-if-ckf",
                value=f"relevance below {floor:.2f}",
            )

    def unmodified(self, policy: Policy, mode: Oversight | None) -> NotModified | None:
        """The 304 outcome for a caller that already has the answer; None if it is not available.

        Spec: CRP-SPEC-003 §11.2 (decision E12)
        """
        known = self.match.known
        if self.match.status is not CacheStatus.HIT or known is None:
            return None
        if known.envelope is None or known.headers is None:
            return None
        if known.headers.get(names.OVERSIGHT_MODE, "") != (mode or ""):
            return None
        if not self._vouched(known.envelope.quality_tier, known.headers, policy):
            return None
        headers = {**known.headers, names.CACHE_STATUS: CacheStatus.HIT.value}
        return NotModified(known.envelope.etag, headers, known.envelope)

    def _vouched(self, tier: QualityTier, headers: Mapping[str, str], policy: Policy) -> bool:
        """Whether an earlier answer meets the demands of this request.

        An unjudged answer meets no demand that withholds answers: it is checked again, since the
        reason that it was not judged, such as a spent budget, may be gone.
        """
        request, risk = self._request, headers.get(names.RISK)
        if risk == RiskLevel.UNKNOWN and halting_demands(policy, request.accept_risk):
            return False
        if not accepts_tier(tier, request.accept_quality):
            return False
        accepted = request.accept_risk
        if accepted is None:
            return True
        unread = policy.allows_unread
        return risk in RISKS and not exceeds_level(RiskLevel(risk), accepted, unread=unread)

    def envelope(self, validators: Validators) -> Envelope | None:
        """The earlier envelope, if it matched and its validators are equal to these."""
        known = self.match.known
        granted = self.match.status is CacheStatus.HIT and known is not None
        if not granted or known is None or known.validators != validators:
            return None
        return uncapped(known.envelope, known.tier) if known.envelope else None

    def candidates(self, validators: Validators) -> Candidates | None:
        """The earlier candidates, if Phase 1 would select the same ones again.

        Spec: CRP-SPEC-003 §5.3
        """
        known = self.match.known
        if known is None or not validators.selects_like(known.validators):
            return None
        self.selected = known.candidates is not None
        return known.candidates

    def remember(
        self,
        view: FabricView,
        validators: Validators,
        envelope: Envelope,
        candidates: Candidates,
        now: datetime,
        headers: Mapping[str, str] | None = None,
        tier: QualityTier | None = None,
        made: EnvelopeInputs | None = None,
    ) -> None:
        """Remember an envelope, unless the request has `no-store` or the session is memory-only."""
        if self._request.cache.no_store or view.held():
            return
        present = view.state_hash()
        self._known.remember(
            self._scope,
            validators,
            envelope,
            candidates,
            now,
            headers,
            present=present,
            tier=tier,
            made=made,
        )

    @property
    def outcome(self) -> CacheOutcome | None:
        """The value of `CRP-Context-Cache-Status`; None for an unconditional request."""
        status = self.match.status
        if status is None:
            return None
        return CacheOutcome(status=status, reason=next(iter(self.match.reasons), ""))

    @property
    def flags(self) -> list[str]:
        """Report flags of this request: the status with all reasons, and a skipped Phase 1."""
        if self.match.status is None:
            return []
        reasons = "+".join(self.match.reasons)
        flags = [f"if-match={self.match.status}" + (f":{reasons}" if reasons else "")]
        return [*flags, "select=reused"] if self.selected else flags


def _prior_hash(request: Request) -> str:
    """Hash of the request's fields on earlier windows and envelopes."""
    before = request.previous
    parts: list[object] = [window.model_dump(mode="json") for window in request.prior]
    if request.pinned or before is not None:
        parts += [sorted(request.pinned), [before.etag, sha256(before.text)] if before else []]
    return _hash(parts)


def _prompt_hash(request: Request) -> str:
    """Hash of the request fields that are sent to the model in addition to the envelope."""
    asked = set(
        "system_prompt history results instructions max_tokens temperature seed tools".split()
    )
    return _hash(request.model_dump(mode="json", include=asked))


def _hash(value: object) -> str:
    # Not canonical JSON: tools and seeds may contain numbers outside its range.
    return sha256(json.dumps(value, sort_keys=True))
