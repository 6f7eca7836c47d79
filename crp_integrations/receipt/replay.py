"""Replay of a receipt: repeats ranking, packing, rendering, examination and the policy's verdict.

Each part results in `equal`, in `differs` with the place of the first difference, or in `not-run`
with the reason. A replay reads only the receipt and the engines that the caller passes.

Spec: CRP-SPEC-005 §15.4
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from crp_integrations.dpe.dossier import SYSTEM
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.risk import ceiling
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.errors import PolicySyntaxError, ReceiptBroken
from crp_integrations.policy.policy_text import parse_policy, policy_hash
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import (
    DELIVER,
    UNREACHABLE,
    WITHHOLD,
    AnswerDecision,
    AnswerTerms,
    decide_answer,
    judge_answer,
    needs_review,
)
from crp_integrations.receipt import outline
from crp_integrations.receipt import replay_context as making
from crp_integrations.receipt import replay_examination as judging
from crp_integrations.receipt.canonical import dumps
from crp_integrations.receipt.leaves import COMMUNITIES, FACT, quoted
from crp_integrations.receipt.outline import NAMELESS
from crp_integrations.receipt.predicate import LEAF, Content, PolicyRecord
from crp_integrations.receipt.reconstruction import (
    MALFORMED,
    MissingTextError,
    Texts,
    budget_of,
    content_of,
    malformed,
    sealed,
)
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_examination import Verdict, settings_of
from crp_integrations.receipt.replay_records import (
    DIFFERS,
    EQUAL,
    HOLDS,
    NOT_RECOMPUTED,
    NOT_RUN,
    NOTHING,
    Difference,
    Differs,
    NotRun,
    Outcome,
    Replayed,
    ReplayedPart,
    ReplayTools,
    Stated,
    first,
)
from crp_integrations.receipt.signed_statement import SUBJECTS
from crp_integrations.records import Part
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import HaltReason, QualityTier

# The window's outcome for each decision.
_OUTCOMES: Final = {DELIVER: "released", WITHHOLD: "halted", UNREACHABLE: "refused"}


def policies(verdict: Verdict) -> Outcome:
    """Apply the policies in force to the report, and decide on the answer.

    Spec: CRP-SPEC-005 §7.4; related facts §6
    """
    content, record = verdict.content, verdict.content.policy
    policy = policy_of(record.text, "content.policy.text")
    difference = first(record.hash, policy_hash(policy), "policy.hash")
    if difference is not None or record.judgement is None:
        return difference, "" if difference else "no answer was judged"
    report = verdict.report
    if isinstance(report, Difference):
        return report, ""
    tier = _tier(verdict, report)
    difference = first(record.tier and record.tier.value, tier and tier.value, "policy.tier")
    judgement = judge_answer(policy, report, tier=tier, oversight=content.request.oversight)
    difference = difference or first(record.judgement, outline.plain(judgement), "policy.judgement")
    reported = None
    if record.report_only is not None:
        only = policy_of(record.report_only, "content.policy.report_only")
        reported = outline.plain(judge_answer(only, report, tier=tier, enforced=False))
    difference = difference or first(record.reported, reported, "policy.reported")
    difference = difference or first(
        record.catalogue, report.classification.engine, "policy.catalogue"
    )
    return difference or _decision(verdict, report, judgement, tier), ""


def _tier(verdict: Verdict, report: Report) -> QualityTier | None:
    envelope = verdict.content.envelope
    if envelope is None:
        return None
    return capped(envelope.quality_tier, report, settings_of(verdict.content, verdict.tools))


def _decision(
    verdict: Verdict, report: Report, judgement: PolicyJudgement, tier: QualityTier | None
) -> Difference | None:
    """Decide on the answer again; a person's approval is taken from the record."""
    record = verdict.content.policy
    if record.terms is None:
        if verdict.content.fit is not None:
            raise NotRun("the conditions on the answer besides the policies are not recorded")
        # The caller called the model itself: only the policy was applied.
        terms, wanted = AnswerTerms(), False
        halt = judgement.halt
        decision = AnswerDecision(DELIVER) if halt is None else AnswerDecision(WITHHOLD, halt)
    else:
        terms = terms_of(record)
        wanted = needs_review(judgement, budget_of(record.safety_budget), terms)
        unread = policy_of(record.text, "content.policy.text").allows_unread
        decision = decide_answer(report, tier, judgement, terms, unread=unread)
    if record.reason == HaltReason.JUDGE_FAILED and decision.word == DELIVER:
        # The owner's choice to withhold such answers is taken from the record; that the judge
        # failed is checked in the report.
        if report.judge is None or not report.judge.failed:
            return Difference("policy.reason", record.reason, "the judge did not fail")
        decision = AnswerDecision(WITHHOLD, HaltReason.JUDGE_FAILED)
    asked = wanted and decision.word == DELIVER and not terms.unanswered
    if asked and not record.approved:
        decision = AnswerDecision(WITHHOLD, HaltReason.OVERSIGHT)
    if record.reason == HaltReason.ACTION and decision.word == DELIVER:
        # The check of the answer's tool calls is taken from the record.
        decision = AnswerDecision(WITHHOLD, HaltReason.ACTION)
    recorded = {
        "decision": record.decision,
        "reason": record.reason,
        "reviewed": record.reviewed,
        "approved": record.approved,
    }
    replayed = {
        "decision": decision.word,
        "reason": decision.reason.value if decision.reason else "",
        "reviewed": wanted,
        "approved": record.approved and asked,
    }
    return first(recorded, replayed, "policy") or first(
        verdict.receipt.chain.outcome, _OUTCOMES[decision.word], "chain.outcome"
    )


def terms_of(recorded: PolicyRecord) -> AnswerTerms:
    """Conditions on an answer besides the policies; defaults if none are recorded."""
    if recorded.terms is None:
        return AnswerTerms()
    return AnswerTerms(
        **{**dict(recorded.terms), "review_below": budget_of(recorded.terms.review_below)}
    )


def capped(tier: QualityTier, report: Report, settings: DpeSettings) -> QualityTier:
    """The tier that policies see: the envelope's, capped by the answer's quality."""
    return tier.capped(ceiling(report.rqa_score, settings.quality)[0])


def policy_of(text: str, place: str) -> Policy:
    """Parse a recorded policy."""
    try:
        return parse_policy(text)
    except PolicySyntaxError as error:
        raise ReceiptBroken(place, str(error)) from None


def replay(receipt: Receipt, tools: ReplayTools = NOTHING) -> Replayed:
    """Repeat what a receipt records, using only the receipt.

    Use `verify` to check signature, tree and chain.

    Spec: CRP-SPEC-005 §15.4

    Args:
        tools: available engines; their results are compared if the receipt names the same ones.

    Returns:
        The outcome of each part; `Replayed.require` raises if one differs.
    """
    content, texts = content_of(receipt), Texts(receipt)
    made = making.ReplayedContext(receipt.content["envelope"] or {}, content, texts, tools)
    verdict = judging.Verdict(receipt, content, texts, tools)
    run: Mapping[str, Callable[[], Outcome]] = {
        "digest": lambda: _digest(receipt),
        "leaves": lambda: _leaves(receipt, content),
        "budget": lambda: making.budget(made),
        "selection": lambda: making.selection(made),
        "context": lambda: making.context(made),
        "prompt": lambda: making.prompt(made),
        "counts": lambda: making.counts(made),
        "answer": lambda: judging.answer(content, texts),
        "examination": lambda: judging.examination(verdict),
        "judge": lambda: judging.judged(verdict),
        "repair": lambda: judging.repaired(verdict),
        "policy": lambda: policies(verdict),
        "catalogue": lambda: judging.catalogue(content, texts, tools),
        "signals": lambda: judging.signals(content, texts, tools),
    }
    if content.examined is None or content.examined.judged is None:
        # Most windows have no judge, so the part is listed only if one was configured.
        run = {name: step for name, step in run.items() if name != "judge"}
    if content.repaired is None:
        run = {name: step for name, step in run.items() if name != "repair"}
    parts = tuple(_part(name, step) for name, step in run.items())
    same = all(part.state != DIFFERS for part in parts)
    wanted = _deciding(content)
    lacking = tuple(part.name for part in parts if part.name in wanted and part.state == NOT_RUN)
    return Replayed(
        receipt_id=receipt.receipt_id,
        same=same,
        lacking=lacking,
        word=DIFFERS if not same else NOT_RECOMPUTED if lacking else HOLDS,
        parts=parts,
        stated=stated(receipt, content, texts),
    )


def _digest(receipt: Receipt) -> Outcome:
    """Compare the digest of the predicate, which a change of one field does not fit."""
    statement = receipt.statement
    return first(statement.digest, statement.computed_digest(), "predicate.digest"), ""


def _leaves(receipt: Receipt, content: Content) -> Outcome:
    """Compare the names of leaves with the places that refer to them; each is referred to."""
    names = [leaf.name for leaf in receipt.leaves]
    places = {
        "request.question": (content.request.question, "request"),
        "seal": (content.seal, "seal"),
    }
    for number, candidate in enumerate(content.candidates):
        places[f"candidates[{number}].leaf"] = (candidate.leaf, FACT + candidate.id)
    for number, document in enumerate(content.documents):
        places[f"documents[{number}].leaf"] = (document.leaf, f"document/{document.source}")
    for number, passage in enumerate((content.examined and content.examined.passages) or ()):
        for leaf in _numbers(passage.pieces, marked=True):
            # The system prompt is a passage too, and may quote facts.
            if passage.id != SYSTEM and receipt.leaves[leaf].fact_id:
                places[f"examined.passages[{number}].pieces"] = (leaf, FACT + passage.id)
    for place, (leaf, name) in places.items():
        difference = first(name, dict(enumerate(names)).get(leaf, "nothing"), place)
        if difference is not None:
            return difference, ""
    used = {names.index(name) for name in SUBJECTS} | {*_numbers(content)}
    if any(candidate.community not in (None, NAMELESS) for candidate in content.candidates):
        used |= {number for number, name in enumerate(names) if name == COMMUNITIES}
    for number in [*used]:
        used |= quoted(receipt.leaves[number].parts)
    extra = next((number for number in range(len(names)) if number not in used), None)
    if extra is None:
        return None, ""
    return Difference(f"texts.leaves[{extra}]", repr(names[extra]), "no such text"), ""


def _numbers(value: Any, *, marked: bool = False) -> Iterator[int]:
    """The numbers of leaves in a part of the content."""
    if isinstance(value, Part):
        for name, field in type(value).model_fields.items():
            yield from _numbers(getattr(value, name), marked=LEAF in field.metadata)
    elif isinstance(value, tuple):
        for item in value:
            # Of a stretch, the first number is a leaf's.
            stretch = marked and isinstance(item, tuple)
            yield from _numbers(item[0] if stretch else item, marked=marked)
    elif marked and isinstance(value, int):
        yield value


def stated(receipt: Receipt, content: Content, texts: Texts) -> Stated:
    """Name and value of each thing that rests on the signer's word; a replay computes none.

    Records with many values are stated by their hash.
    """
    chain, model, package, policy = receipt.chain, content.model, content.package, content.policy
    judged = content.examined.judged if content.examined else None
    try:
        state = str(sealed(texts).get("state_hash", ""))
    except MissingTextError:
        state = ""
    sources = sorted({candidate.source for candidate in content.candidates})
    values = {
        "asked by": _leaf(texts, content.asker),
        "documents": "; ".join(f"{d.source}: {_leaf(texts, d.leaf)}" for d in content.documents),
        "session": chain.session_id,
        "time": chain.timestamp,
        "HMAC of the window": chain.hmac,
        "windows before it": ", ".join(chain.parents),
        "state of the store": state,
        "outcome of the window": "" if policy.judgement else chain.outcome,
        "model asked": model.asked,
        "model that answered": model.answered,
        "model of the judge": judged.model if judged and judged.calls else "",
        "temperature": content.request.temperature or "",
        "seed": content.request.seed or "",
        "most tokens of the answer": content.request.max_tokens or "",
        "end of the answer": model.finish_reason,
        "calls of models": ", ".join(f"{call.purpose} by {call.model}" for call in content.calls),
        "sub-questions": "; ".join(_leaf(texts, leaf) for leaf in content.request.needs),
        "flags": ", ".join(content.examined.flags) if content.examined else "",
        "embedder": model.embedder,
        "reranker": model.reranker,
        "tokenizer": model.tokenizer.identity if model.tokenizer else "",
        "candidates of the search": str(len(content.candidates)) if content.envelope else "",
        "sources of the candidates": ", ".join(sources),
        "approved by a person": "yes" if policy.approved else "",
        "safety budget": policy.safety_budget,
        "package": f"{package.name} {package.version}",
        "settings": content.settings.digest,
        **{
            name: sha256(dumps({part: receipt.content[part] for part in parts}))
            for name, parts in _RECORDS.items()
        },
        "what texts may quote": sha256(
            dumps([(leaf.name, leaf.of, leaf.follows) for leaf in receipt.leaves])
        ),
    }
    return tuple((name, str(value)) for name, value in values.items() if value)


# Parts of the content that a replay starts from, and that are stated by their hash.
_RECORDS: Final = {
    "request and calls": ("request", "calls", "model"),
    "records of the selection": ("candidates", "selected", "fit", "envelope", "settings"),
    "records of the examination": ("examined", "policy"),
}


def _leaf(texts: Texts, number: int | None) -> str:
    text = None if number is None else texts.get(number)
    return "" if text is None else text


def _part(name: str, run: Callable[[], Outcome]) -> ReplayedPart:
    try:
        difference, why = run()
    except Differs as error:
        difference, why = error.difference, ""
    except (NotRun, MissingTextError) as error:
        return ReplayedPart(name=name, state=NOT_RUN, why=str(error))
    except MALFORMED as error:
        raise malformed(f"content ({name})", error) from error
    if difference is None:
        return ReplayedPart(name=name, state=EQUAL, why=why)
    return ReplayedPart(
        name=name,
        state=DIFFERS,
        place=difference.place,
        recorded=difference.recorded,
        replayed=difference.replayed,
        why=why,
    )


def _deciding(content: Content) -> set[str]:
    """Names of the parts that decide whether a receipt holds."""
    wanted = {"digest", "context", "answer", "policy"}
    if content.envelope is not None:
        wanted.add("selection")
    if content.calls and content.request.shaped:
        wanted.add("prompt")
    if content.examined is not None or content.report.get("claims"):
        wanted.add("examination")
    if content.examined and content.examined.judged and content.examined.judged.calls:
        wanted.add("judge")
    if content.repaired is not None:
        wanted.add("repair")
    return wanted
