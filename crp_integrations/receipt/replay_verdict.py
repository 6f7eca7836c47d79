"""The second half of a replay: the examination from what engines said, and the policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from crp_integrations.dpe.catalogue import catalogue as shipped
from crp_integrations.dpe.examination import Examination, again, stand_ins
from crp_integrations.dpe.judge.verdict import concluded, of_judge
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.rqa import ceiling
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.signals import Compared, Deviation, SignalsMissing
from crp_integrations.dpe.stages.s12_regulatory import VERDICT
from crp_integrations.dpe.stages.s13_report import finish
from crp_integrations.errors import ConfigError, CRPError, PolicySyntaxError, ReceiptBroken
from crp_integrations.policy.policy_text import parse_policy, policy_hash
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import (
    DELIVER,
    UNREACHABLE,
    WITHHOLD,
    AnswerDecision,
    AnswerTerms,
    apply_oversight,
    decide_answer,
    judge_answer,
    needs_review,
)
from crp_integrations.receipt import bare
from crp_integrations.receipt.again import NotRun, Outcome, Tools
from crp_integrations.receipt.disclosed import Withheld, dpe_names, dpe_settings
from crp_integrations.receipt.places import Difference, first
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.predicate_verdict import Examined, PolicyTold
from crp_integrations.receipt.reading import Texts, budget_of, examination_of, sealed
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_judged import asked_again
from crp_integrations.scores import SCALE
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import HaltReason, QualityTier

# What each engine is asked, by how the names of signals begin.
VERIFIER: Final = ("attribution.reading", "risk.", "entailment.", "coherence.")
EMBEDDER: Final = (
    "attribution.cosines", "attribution.windows", "repetition.", "completeness.", "flow.",
    "omission.",
)  # fmt: skip
RECOGNISERS: Final = "personal."
# What the level comes from where somebody read the claims.
CLAIMS: Final = "claims"
# How a window ends with each decision.
_OUTCOMES: Final = {DELIVER: "released", WITHHOLD: "halted", UNREACHABLE: "refused"}


def answer(content: Content, texts: Texts) -> Outcome:
    """The answer beside the hash of it that the window's seal holds."""
    recorded = str(sealed(texts).get("response_hash", ""))
    if not recorded:
        raise NotRun("the window has no seal")
    return first(recorded, sha256(texts.named("answer")), "seal.response_hash"), ""


@dataclass(frozen=True)
class Verdict:
    """A receipt's examination, done again when it is first asked for."""

    receipt: Receipt
    content: Content
    texts: Texts
    tools: Tools

    @property
    def told(self) -> Examined:
        """What was examined beside what.

        Raises:
            NotRun: nothing was.
        """
        if self.content.examined is None:
            raise NotRun("nothing was examined")
        return self.content.examined

    @cached_property
    def examination(self) -> Examination:
        """The same with its texts."""
        return examination_of(self.content, self.told, self.texts)

    @cached_property
    def screened(self) -> Report | Difference:
        """What the stages without a model call say, or why it cannot be made."""
        try:
            return again(self.examination, settings_of(self.content, self.tools))
        except SignalsMissing as error:
            return Difference(f"examined.signals[{error.place}]", str(error))
        except ReceiptBroken:
            raise
        except (CRPError, ValueError, TypeError, KeyError, IndexError) as error:
            return Difference("examined", f"cannot be examined: {type(error).__name__}")

    @cached_property
    def report(self) -> Report | Difference:
        """The report with the identity of its window, or why it cannot be made."""
        made = self.screened
        if isinstance(made, Difference):
            return made
        decides = settings_of(self.content, self.tools).decides == CLAIMS
        try:
            flagged = with_judge(made, self.examination, self.told.flags, decides=decides)
        except ConfigError as error:
            raise ReceiptBroken("content.examined.judged.language", str(error)) from None
        return _named(_of_its_time(flagged, self.content), self.receipt, self.content)


def with_judge(
    made: Report, examination: Examination, flags: Sequence[str], *, decides: bool
) -> Report:
    """The report with what was heard of its judge, and with flags that were added to it.

    Args:
        flags: as recorded; those that follow from the judge are made again.
    """
    run = examination.judged
    if run is None:
        return made.changed(flags=(*made.flags, *flags))
    found = concluded(made, examination.dossier, run, decides=decides)
    own = found.flags[len(made.flags) :]
    kept = [one for one in flags if not of_judge(one) or one in own]
    missing = [one for one in own if one not in kept]
    # Values of our own: nothing is validated again.
    return found.model_copy(update={"flags": (*made.flags, *kept, *missing)})


def _of_its_time(report: Report, content: Content) -> Report:
    """The report without what the package has learnt since the receipt was made.

    Settings that came later name no number of it, and the catalogue has the name that it had. What
    the catalogue said is a signal like those of other engines.
    """
    settings = content.settings
    since = dpe_names() - {
        *settings.dpe,
        *(one.removeprefix("dpe.") for one in settings.withheld),
    }
    if since:
        kept = {name: value for name, value in report.thresholds.items() if name not in since}
        report = report.model_copy(update={"thresholds": kept})
    name = str(content.report["classification"]["engine"])
    own = report.classification.engine
    if not own or shipped().digest in name:
        return report
    stages = tuple(
        run.model_copy(update={"engine": name}) if run.engine == own else run
        for run in report.stages
    )
    said = report.classification.model_copy(update={"engine": name})
    return report.model_copy(update={"classification": said, "stages": stages})


def examination(verdict: Verdict) -> Outcome:
    """The report, made again from what engines said, and its hash beside the sealed one.

    Spec: CRP-SPEC-005 §15.4
    """
    report = verdict.report
    if isinstance(report, Difference):
        return report, ""
    needs = verdict.examination.dossier.sub_queries
    found = first(verdict.content.report, bare.report(report, needs), "report")
    if found is not None:
        return found, ""
    known = str(sealed(verdict.texts).get("report_hash", ""))
    if not known:
        return None, "the report was not sealed"
    return first(known, report.report_hash, "seal.report_hash"), ""


def judged(verdict: Verdict) -> Outcome:
    """What a judge was asked; its word goes into the report, which `examination` compares.

    Spec: CRP-SPEC-005 §6.2 (decision D13)
    """
    if verdict.told.judged is None:
        raise NotRun("no judge was configured")
    made = verdict.screened
    if isinstance(made, Difference):
        raise NotRun("the claims cannot be made again")
    told = verdict.examination
    return asked_again(told.judged, told.dossier, made.claims)


def policies(verdict: Verdict) -> Outcome:
    """What the policies in force say of the report, and what is decided by that.

    Spec: CRP-SPEC-005 §7.4; related facts §6
    """
    content, told = verdict.content, verdict.content.policy
    policy = policy_of(told.text, "content.policy.text")
    found = first(told.hash, policy_hash(policy), "policy.hash")
    if found is not None or told.judgement is None:
        return found, "" if found else "no answer was judged"
    report = verdict.report
    if isinstance(report, Difference):
        return report, ""
    tier = _tier(verdict, report)
    found = first(told.tier and told.tier.value, tier and tier.value, "policy.tier")
    judgement = judge_answer(policy, report, tier=tier, oversight=content.request.oversight)
    found = found or first(told.judgement, bare.plain(judgement), "policy.judgement")
    reported = None
    if told.report_only is not None:
        only = policy_of(told.report_only, "content.policy.report_only")
        reported = bare.plain(judge_answer(only, report, tier=tier, enforced=False))
    found = found or first(told.reported, reported, "policy.reported")
    found = found or first(told.catalogue, report.classification.engine, "policy.catalogue")
    return found or _decision(verdict, report, judgement, tier), ""


def _tier(verdict: Verdict, report: Report) -> QualityTier | None:
    envelope = verdict.content.envelope
    if envelope is None:
        return None
    return capped(envelope.quality_tier, report, settings_of(verdict.content, verdict.tools))


def _decision(
    verdict: Verdict, report: Report, judgement: PolicyJudgement, tier: QualityTier | None
) -> Difference | None:
    """What becomes of the answer, decided again; that a person approved it is told."""
    told = verdict.content.policy
    if told.terms is None:
        if verdict.content.fit is not None:
            raise NotRun("what the answer was held against besides the policies is not told")
        # Somebody else's call: the policy alone was asked.
        terms, wanted = AnswerTerms(), False
        halt = judgement.halt
        found = AnswerDecision(DELIVER) if halt is None else AnswerDecision(WITHHOLD, halt)
    else:
        terms = terms_of(told)
        wanted = needs_review(judgement, budget_of(told.safety_budget), terms)
        found = decide_answer(report, tier, judgement, terms)
    if told.reason == HaltReason.JUDGE_FAILED and found.word == DELIVER:
        # That its owner wants the answer withheld then is told; that the judge failed is not.
        if report.judge is None or not report.judge.failed:
            return Difference("policy.reason", told.reason, "the judge did not fail")
        found = AnswerDecision(WITHHOLD, HaltReason.JUDGE_FAILED)
    asked = wanted and found.word == DELIVER and not terms.unanswered
    found = apply_oversight(found, wanted=wanted, approved=told.approved, terms=terms)
    recorded = {
        "decision": told.decision,
        "reason": told.reason,
        "reviewed": told.reviewed,
        "approved": told.approved,
    }
    replayed = {
        "decision": found.word,
        "reason": found.reason.value if found.reason else "",
        "reviewed": wanted,
        "approved": told.approved and asked,
    }
    return first(recorded, replayed, "policy") or first(
        verdict.receipt.chain.outcome, _OUTCOMES[found.word], "chain.outcome"
    )


def terms_of(told: PolicyTold) -> AnswerTerms:
    """What an answer was held against besides the policies; nothing where that is not told."""
    if told.terms is None:
        return AnswerTerms()
    return AnswerTerms(
        accept_risk=told.terms.accept_risk,
        accept_quality=told.terms.accept_quality,
        part=told.terms.part,
        unanswered=told.terms.unanswered,
        review_below=budget_of(told.terms.review_below),
    )


def capped(tier: QualityTier, report: Report, settings: DpeSettings) -> QualityTier:
    """What the policies are told of an envelope: its tier, capped by the answer's quality."""
    return tier.capped(ceiling(report.rqa_score, settings.quality)[0])


def policy_of(text: str, place: str) -> Policy:
    """A policy of content.

    Raises:
        ReceiptBroken: it is none.
    """
    try:
        return parse_policy(text)
    except PolicySyntaxError as error:
        raise ReceiptBroken(place, str(error)) from None


def catalogue(content: Content, texts: Texts, tools: Tools) -> Outcome:
    """The registered use, classified again where the policy engine is at hand."""
    examined = content.examined
    if examined is None or not examined.engines.policy:
        raise NotRun("the use was not classified")
    if tools.policy is None:
        raise NotRun("no policy engine is at hand")
    if shipped().digest not in content.policy.catalogue:
        raise NotRun("the catalogue here is another one")
    heard = _compared(content, examined, texts, tools, (VERDICT,))
    if heard.deviations:
        place = heard.deviations[0].entry
        return Difference(f"examined.signals[{place}]", "the recorded verdict", "another"), ""
    return None, "" if heard.asked else "nothing was asked"


def signals(content: Content, texts: Texts, tools: Tools) -> Outcome:
    """What engines at hand say of the answer today, within the tolerance."""
    examined = content.examined
    if examined is None:
        raise NotRun("nothing was examined")
    engines = examined.engines
    rooms: list[str] = []
    if tools.verifier is not None and tools.verifier.identity == engines.verifier:
        rooms += VERIFIER
    if tools.embedder is not None and tools.embedder.identity == engines.embedder:
        rooms += EMBEDDER
    known = {identity for identity, _ in engines.recognisers}
    if tools.recognisers and {one.identity for one in tools.recognisers} == known:
        rooms.append(RECOGNISERS)
    if not rooms:
        raise NotRun("none of the engines that the receipt names is at hand")
    heard = _compared(content, examined, texts, tools, tuple(rooms))
    worst = [one for one in heard.deviations if one.most is None or one.most > tools.tolerance]
    if worst:
        return _deviation(worst[0], tools.tolerance), ""
    most = max((one.most or 0 for one in heard.deviations), default=0)
    return None, (
        f"{heard.asked} asked again, largest difference {most / SCALE:.6f}, "
        f"allowed {tools.tolerance / SCALE:.6f}"
    )


def _deviation(one: Deviation, tolerance: int) -> Difference:
    far = "another form" if one.most is None else f"{one.most / SCALE:.6f} away"
    wanted = f"within {tolerance / SCALE:.6f}"
    return Difference(f"examined.signals[{one.entry}] ({one.at})", wanted, far)


def _compared(
    content: Content, examined: Examined, texts: Texts, tools: Tools, rooms: tuple[str, ...]
) -> Compared:
    told = examination_of(content, examined, texts)
    heard = Compared(told.entries, *rooms)
    at_hand: dict[str, Any] = {}
    if rooms == (VERDICT,):
        at_hand["policy"] = tools.policy
    else:
        if VERIFIER[0] in rooms:
            at_hand["verifier"] = tools.verifier
        if EMBEDDER[0] in rooms:
            at_hand["embedder"] = tools.embedder
        if RECOGNISERS in rooms:
            at_hand["recognisers"] = tools.recognisers
    try:
        examine(
            told.dossier,
            settings=settings_of(content, tools),
            signals=heard,
            **{**stand_ins(told.engines), **at_hand},
        )
    except SignalsMissing:
        raise NotRun("the signals do not fit the examination") from None
    return heard


def settings_of(content: Content, tools: Tools) -> DpeSettings:
    """The provenance engine's settings in force.

    Raises:
        NotRun: weights were withheld and are not at hand.
    """
    if tools.dpe is not None:
        return tools.dpe
    told = content.settings
    try:
        return dpe_settings(told.dpe, told.withheld)
    except Withheld as error:
        raise NotRun(f"{error}; only who has the settings can do it again") from None
    except ValueError as error:
        raise ReceiptBroken("content.settings.dpe", str(error)) from None


def _named(report: Report, receipt: Receipt, content: Content) -> Report:
    """The report with the identity of its window."""
    chain = receipt.chain
    return finish(
        report,
        session_id=chain.session_id,
        window_id=chain.window_id,
        window_number=chain.window_number,
        timestamp=chain.timestamp,
        settings_digest=content.settings.digest,
    )
