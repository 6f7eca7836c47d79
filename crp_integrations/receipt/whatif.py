"""What else a window could have been: the same candidates and answer under something other.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from crp_integrations.dpe.engine_signals import Live, Remembered, Signals, SignalsMissing
from crp_integrations.dpe.judge.verdict import of_judge
from crp_integrations.dpe.pipeline import Examination, examine, stand_ins
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.compliance import VERDICT
from crp_integrations.envelope.caller_candidates import recount_tokens
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.continuation import is_summary
from crp_integrations.envelope.near_duplicates import as_pairs
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import CRPError, EngineError, RequestError
from crp_integrations.guard.ports import Bundle, PolicyEngine
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.policy.verdict import DELIVER, decide_answer, judge_answer, needs_review
from crp_integrations.ports import TokenCounter
from crp_integrations.receipt.comparison import (
    ContextChange,
    Proportion,
    Ruling,
    Supposed,
    VerdictChange,
    context_change,
    verdict_change,
)
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    LeftOutError,
    Texts,
    budget_of,
    content_of,
    examination_of,
    malformed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay import capped, policy_of, terms_of
from crp_integrations.receipt.replay_context import Context, budget_within
from crp_integrations.receipt.replay_examination import settings_of, with_judge
from crp_integrations.receipt.replay_records import NOTHING, Differs, NotRun, Tools
from crp_integrations.vocabulary import Exactness, QualityTier

PRESETS: Final = ("default", "literal")


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be other than it was; None leaves it.

    Attributes:
        budget_tokens: tokens that the context may have.
        without: ids of facts that are no candidates.
        policy: safety policy in place of the one in force.
        bundle: classifies the use in place of the shipped catalogue.
        preset: settings of a published preset, `default` or `literal`.
        model: another model; its tokenizer is the counter at hand.
        limit: that model's context limit, in tokens.
    """

    budget_tokens: int | None = None
    without: tuple[str, ...] = ()
    policy: str | None = None
    bundle: Bundle | None = None
    preset: str | None = None
    model: str | None = None
    limit: int | None = None

    @property
    def of_context(self) -> bool:
        """Whether it can change the context."""
        given = (self.budget_tokens, self.preset, self.model, self.limit)
        return bool(self.without) or any(one is not None for one in given)


def whatif(receipt: Receipt, change: Change, tools: Tools = NOTHING) -> Supposed:
    """Pack and judge once more, with something changed.

    The scores of the candidates stay as they are recorded, and so does the answer: no model is
    asked what it would have said.

    Args:
        tools: the counter of the model for exact tokens; embedder and verifier for the verdict on
            the answer beside another context; the policy engine for a bundle.

    Raises:
        RequestError: a fact is no candidate, or the change has no usable value.
        ReceiptBroken: the content is malformed.
    """
    content = content_of(receipt)
    _check(content, change)
    try:
        return _supposed(receipt, content, change, tools)
    except MALFORMED as error:
        raise malformed("content", error) from error


def _supposed(receipt: Receipt, content: Content, change: Change, tools: Tools) -> Supposed:
    texts = Texts(receipt)
    notes: list[str] = []
    made = Context(receipt.content["envelope"] or {}, content, texts, tools)
    before: Envelope | None = None
    after: Envelope | None = None
    difference: ContextChange | None = None
    if content.envelope is None or content.fit is None:
        if change.of_context:
            notes.append("the context was made elsewhere, so it cannot be packed otherwise")
    else:
        try:
            _whole(made)
            before = made.envelope
            after = _packed(made, change, notes) if change.of_context else before
            difference = context_change(before, after)
        except NotRun as error:
            notes.append(f"context not run: {error}")
        except Differs as error:
            notes.append(f"the recorded context cannot be made again: {error.difference.place}")
    verdict: VerdictChange | None = None
    if change.of_context and after is None and content.fit is not None:
        # Beside the context as it was, it would look as if the change made no difference.
        notes.append("the verdict was not made again: it depends on the context")
    else:
        verdict = _verdict(content, texts, change, tools, after, notes)
    return Supposed(
        receipt_id=receipt.receipt_id, context=difference, verdict=verdict, notes=tuple(notes)
    )


def _check(content: Content, change: Change) -> None:
    known = {one.id for one in content.candidates}
    unknown = [fact_id for fact_id in change.without if fact_id not in known]
    if unknown and not known:
        raise RequestError(
            f"fact {unknown[0]!r:.80} cannot be left out: the receipt names no candidates, since "
            "its context was made elsewhere or there was none"
        )
    if unknown:
        raise RequestError(f"fact {unknown[0]!r:.80} is not among the {len(known)} candidates")
    if change.budget_tokens is not None and change.budget_tokens < 0:
        raise RequestError(f"the budget is {change.budget_tokens}, wanted 0 or more tokens")
    if change.model is not None and not change.model.strip():
        raise RequestError("the model's name is empty; give one, such as gpt-4o")
    if change.preset is not None and change.preset not in PRESETS:
        raise RequestError(f"preset {change.preset!r:.40} is not one of {', '.join(PRESETS)}")
    if change.policy is not None:
        parse_policy(change.policy)


def _whole(made: Context) -> None:
    """Refuse to pack where texts of candidates are left out.

    The fillers in their places have other sizes in bytes and tokens, so no figure would be true.
    """
    lacking = len(made.seam[1])
    if lacking:
        texts = "1 text is" if lacking == 1 else f"{lacking} texts are"
        raise NotRun(f"{texts} not in this copy")


def _packed(made: Context, change: Change, notes: list[str]) -> Envelope:
    """The envelope under a change."""
    candidates, _ = made.seam
    counter = _counter(made, change, candidates, notes)
    if change.without:
        candidates = without(candidates, frozenset(change.without))
    if counter.identity != candidates.tokenizer and change.model is not None:
        candidates = recount_tokens(candidates, counter)
    settings = made.settings
    if change.preset is not None:
        settings = EnvelopeSettings.preset(change.preset)
        notes.append("the candidates and their scores are those of the settings that were in force")
    return made.assembled(
        replace(candidates, tokenizer=counter.identity),
        counter,
        settings,
        budget_tokens=_budget(made, change, notes),
        automatic=change.budget_tokens is None and made.automatic,
        model=change.model or made.content.model.asked,
    )


def without(candidates: Candidates, gone: frozenset[str]) -> Candidates:
    """Candidates without some of them."""
    kept = [place for place, one in enumerate(candidates.facts) if one.fact_id not in gone]
    moved = {place: number for number, place in enumerate(kept)}
    return replace(
        candidates,
        facts=tuple(candidates.facts[place] for place in kept),
        duplicates=as_pairs(candidates.duplicates).among(moved),
        conflicts=as_pairs(candidates.conflicts).among(moved),
    )


def _counter(
    made: Context, change: Change, candidates: Candidates, notes: list[str]
) -> TokenCounter:
    given, tokenizer = made.tools.counter, made.tokenizer
    if given is not None and (change.model is not None or given.identity == tokenizer.identity):
        if change.model is not None and given.exactness is not Exactness.EXACT:
            by = f"{given.identity!r:.80} ({given.exactness.value}), not by its own tokenizer"
            notes.append(f"tokens of {change.model!r:.60} are counted by {by}")
        return given
    if change.model is not None:
        notes.append(
            f"no tokenizer of {change.model!r:.60} is at hand; counts are the recorded ones"
        )
    notes.append("tokens of the text as a whole are in proportion to the recorded counts")
    return Proportion(candidates, tokenizer.identity)


def _budget(made: Context, change: Change, notes: list[str]) -> int:
    if change.budget_tokens is not None:
        return change.budget_tokens
    room = made.fit.room
    if change.limit is None or room is None:
        return made.fit.budget_tokens
    notes.append("what stands around the context is counted as it was for the first model")
    return budget_within(made, room, change.limit)


class _Partly(Remembered):
    """Answers from what was remembered, apart from what is asked anew."""

    def __init__(self, examination: Examination, anew: str) -> None:
        super().__init__(examination.entries)
        self._anew = anew

    def said(self, at: str, ask: Any) -> Any:
        remembered = super().said(at, ask)
        return ask() if at == self._anew else remembered


class _Bundled:
    """A policy engine that decides by another bundle.

    Attributes:
        failure: why it had no value; empty where it had one, or was not asked.
    """

    def __init__(self, engine: PolicyEngine, bundle: Bundle) -> None:
        self.identity = f"{engine.identity}; {bundle.name} {bundle.digest}"
        self._engine, self._bundle = engine, bundle
        self.failure = ""

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self._engine.decide(self._bundle, question)
        except EngineError as error:
            self.failure = str(error)
            raise

    def refuse(self) -> NoReturn:
        """Say why nothing was classified; a use of no class would look like one of this bundle."""
        why = self.failure or f"what {self._bundle.entrypoint} says has another form"
        raise RequestError(f"bundle {self._bundle.name!r:.60} classifies nothing: {why}")


def _verdict(
    content: Content,
    texts: Texts,
    change: Change,
    tools: Tools,
    after: Envelope | None,
    notes: list[str],
) -> VerdictChange | None:
    if content.examined is None:
        notes.append("no answer was examined")
        return None
    try:
        told = examination_of(content, content.examined, texts)
        own = frozenset(one.id for one in content.candidates)
        settings = settings_of(content, tools)
        before = _examined(told, settings, Remembered(told.entries), stand_ins(told.engines))
        policy = _engine(change, tools, notes)
        report = _report(told, settings, change, tools, after, own, before, policy, notes)
        flags = content.examined.flags
        if told.judged is not None and (change.preset is not None or _other(told, after, own)):
            # Beside a verdict that read it, one that did not would look like a change.
            notes.append("no judge is asked again; both verdicts are those without one")
            told = replace(told, judged=None)
            flags = tuple(one for one in flags if not of_judge(one))
        before, report = (with_judge(one, told, flags, settings) for one in (before, report))
    except (NotRun, LeftOutError) as error:
        notes.append(f"the verdict was not made again: {error}")
        return None
    if policy is not None and report.classification.failed:
        policy.refuse()
    judged = _judged(content, content.policy.text, before, content.policy.tier)
    tier = content.policy.tier
    if after is not None and change.of_context:
        rules = settings if change.preset is None else DpeSettings.preset(change.preset)
        tier = capped(after.quality_tier, report, rules)
    text = content.policy.text if change.policy is None else change.policy
    supposed = _judged(content, text, report, tier)
    return verdict_change(before, report, judged, supposed)


def _other(told: Examination, after: Envelope | None, own: Collection[str]) -> bool:
    """Whether the context that is supposed is another one than was examined."""
    if after is None:
        return False
    return _beside(told, after, own) != told.dossier.passages


def _beside(
    told: Examination, after: Envelope, own: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """The passages beside another envelope: its facts, and what was evidence and no candidate."""
    packed = [
        (one.fact_id, "" if is_summary(one.source_id) else one.content) for one in after.facts
    ]
    return (*packed, *(one for one in told.dossier.passages if one[0] not in own))


def _ids(told: Examination) -> list[str]:
    return [name for name, _ in told.dossier.passages]


def _report(
    told: Examination,
    settings: DpeSettings,
    change: Change,
    tools: Tools,
    after: Envelope | None,
    own: Collection[str],
    before: Report,
    policy: PolicyEngine | None,
    notes: list[str],
) -> Report:
    """The report on the answer beside the context that is supposed."""
    shown = told.dossier.passages
    passages = shown if after is None else _beside(told, after, own)
    if change.preset is not None:
        settings = DpeSettings.preset(change.preset)
    engines: dict[str, Any] = stand_ins(told.engines)
    if policy is not None:
        engines["policy"] = policy
    if passages == shown and change.preset is None:
        if policy is None:
            return before
        return _examined(told, settings, _Partly(told, VERDICT), engines)
    measured = settings.decides == "composite"
    verifier = tools.verifier if measured or told.engines.verifier else None
    embedder = tools.embedder if measured or told.engines.embedder else None
    if (verifier is None and (measured or told.engines.verifier)) or (
        embedder is None and (measured or told.engines.embedder)
    ):
        raise NotRun("another context needs verifier and embedder at hand")
    engines |= {"verifier": verifier, "embedder": embedder}
    engines["recognisers"] = tools.recognisers
    engines["policy"] = policy or tools.policy
    if tools.policy is None:
        notes.append("without a policy engine the use is not classified")
    importances: tuple[float, ...] = ()
    if after is not None and told.dossier.importances:
        weights = {fact.fact_id: fact.importance_weight for fact in after.facts}
        known = dict(zip(_ids(told), told.dossier.importances, strict=True))
        importances = tuple(weights.get(name, known.get(name, 0.0)) for name, _ in passages)
    dossier = replace(told.dossier, passages=passages, importances=importances, vectors=None)
    return _examined(replace(told, dossier=dossier), settings, Live(), engines)


def _engine(change: Change, tools: Tools, notes: list[str]) -> _Bundled | None:
    if change.bundle is None:
        return None
    if tools.policy is None:
        notes.append("the bundle was not asked: no policy engine is at hand")
        return None
    return _Bundled(tools.policy, change.bundle)


def _examined(
    told: Examination, settings: DpeSettings, signals: Signals, engines: Mapping[str, Any]
) -> Report:
    try:
        return examine(told.dossier, settings=settings, signals=signals, **engines)
    except SignalsMissing as error:
        raise NotRun(f"the recorded signals do not answer to it: {error}") from None
    except CRPError as error:
        raise NotRun(f"an engine failed: {error}") from None


def _judged(
    content: Content,
    text: str,
    report: Report,
    tier: QualityTier | None,
) -> Ruling:
    """What a policy says, and what becomes of the answer under the caller's own terms."""
    policy, terms = policy_of(text, "policy"), terms_of(content.policy)
    judgement = judge_answer(policy, report, tier=tier, oversight=content.request.oversight)
    found = decide_answer(report, tier, judgement, terms, unread=policy.allows_unread)
    budget = budget_of(content.policy.safety_budget)
    wanted = needs_review(judgement, budget, terms) and not terms.unanswered
    return Ruling(judgement, found, review=wanted and found.word == DELIVER)
