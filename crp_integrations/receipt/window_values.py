"""The values of one window that a receipt is made of, with its settings as decimals.

The texts of an examined answer become leaves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import Examination
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.report_parts import JudgeExchange, JudgeRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.budget import EnvelopeInputs
from crp_integrations.envelope.prompt import BETWEEN
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import CRPError, ReceiptBroken
from crp_integrations.messages import Message, ModelCall
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import AnswerTerms
from crp_integrations.receipt import outline
from crp_integrations.receipt.leaves import Part as TextPart
from crp_integrations.receipt.leaves import TextLeaves, stretches
from crp_integrations.receipt.outline import declared
from crp_integrations.receipt.predicate import (
    EnginesTold,
    Examined,
    JudgeCallTold,
    JudgedTold,
    PriorTold,
    RegisteredSystem,
    RejectedTold,
    SettingsInForce,
)
from crp_integrations.records import Part
from crp_integrations.vocabulary import GroundingMode, Oversight, QualityTier, Strategy


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, and what was sent around the context.

    Attributes:
        instructions: what was added to the system message for this call, as remedies are.
        results: how many of the history's last messages were sent behind the question.
        shaped: the messages were made by `prompt@1`; False for a caller's own.
    """

    query: str
    system_prompt: str = ""
    history: tuple[Message, ...] = ()
    results: int = 0
    instructions: tuple[str, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    grounding: GroundingMode = GroundingMode.PREFERRED
    strategy: Strategy = Strategy.PUSH
    oversight: Oversight | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    shaped: bool = True


@dataclass(frozen=True, slots=True)
class Decided:
    """What the policies in force said of an answer, and what became of it.

    Attributes:
        judgement, reported: of the policy, and of the one that is only reported on; None where
            no answer was judged.
        decision: `deliver`, `withhold`, `unreachable`, or empty where nothing was judged.
        safety_budget: what was left of it before the answer, [0, 1].
        terms: what the answer was held against besides the policies; None where it was held
            against none of that.
    """

    policy: Policy = field(default_factory=Policy)
    report_only: Policy | None = None
    judgement: PolicyJudgement | None = None
    reported: PolicyJudgement | None = None
    tier: QualityTier | None = None
    decision: str = ""
    reason: str = ""
    approved: bool = False
    safety_budget: float = 1.0
    reviewed: bool = False
    terms: AnswerTerms | None = None


@dataclass(frozen=True, slots=True)
class InForce:
    """Settings in force.

    Attributes:
        digest: of the whole tree of settings; equal digests stand for equal settings.
        disclose: whether weights of the operator's own are told (decision D18).
    """

    digest: str
    envelope: EnvelopeSettings = field(default_factory=EnvelopeSettings, compare=False)
    dpe: DpeSettings = field(default_factory=DpeSettings, compare=False)
    disclose: bool = False


@dataclass(frozen=True, slots=True)
class WindowValues:
    """One window.

    Attributes:
        fit: what its envelope was made of; None where there was none, or another made it.
        calls: those for the answer, in order; the first one carries the envelope.
        text: the model's text, empty without a reply.
        examined: what was examined and heard; None where the report is of nothing.
        flags_before: how many of the report's flags are the examination's own; those behind
            them were added by whoever ran the window.
        sources: source by id of facts that were evidence and in no envelope of this window.
        state: further hashes of the window, which go into a leaf of their own.
    """

    asked: Asked
    report: Report
    settings: InForce
    fit: EnvelopeInputs | None = None
    envelope: Envelope | None = None
    calls: tuple[ModelCall, ...] = ()
    text: str = ""
    answered_by: str = ""
    finish_reason: str = ""
    examined: Examination | None = None
    flags_before: int = 0
    decided: Decided = field(default_factory=Decided)
    embedder: str = ""
    reranker: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)

    def sealed(self, report: Report, **state: str) -> WindowValues:
        """The same window once its report has its identity."""
        return replace(self, report=report, state={**self.state, **state})


Kind = TypeVar("Kind", EnvelopeSettings, DpeSettings)
PRESETS: Final = ("default", "literal")
# What is used before the scores only, or for another kind of context.
_BEFORE: Final = frozenset({"assembly", "decompose", "graph", "reuse", "screening"})
_BEFORE_PATHS: Final = re.compile(r"hybrid\.(?!enabled$|whole_share$|passed_over$|stretches_seen$)")
_WEIGHTS: Final = ("_weight", "_factor", "_shift")


class Withheld(Exception):
    """Settings that cannot be put together again, since weights of them were not window."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Name the weights."""
        super().__init__(
            f"{', '.join(names)} were not told; only who has the settings can do it again"
        )


# Settings last longer than many windows.
@lru_cache(maxsize=16)
def disclosed(in_force: InForce) -> dict[str, Any]:
    """Settings as content."""
    withheld: list[str] = []
    parts = {}
    for name, settings in (("envelope", in_force.envelope), ("dpe", in_force.dpe)):
        published = [_flat(type(settings).preset(preset).model_dump()) for preset in PRESETS]
        own = _flat(settings.model_dump(exclude=set(_BEFORE)))
        own = {path: value for path, value in own.items() if not _BEFORE_PATHS.match(path)}
        for path, value in own.items():
            known = any(path in preset and preset[path] == value for preset in published)
            if _is_weight(path) and not known and not in_force.disclose:
                withheld.append(f"{name}.{path}")
        hidden = {path.removeprefix(f"{name}.") for path in withheld if path.startswith(name)}
        parts[name] = {path: _written(value) for path, value in own.items() if path not in hidden}
    return {"digest": in_force.digest, **parts, "withheld": withheld}


def settings_told(kind: type[Kind], recorded: SettingsInForce) -> Kind:
    """Settings of an envelope or of the provenance engine out of content.

    Raises:
        Withheld: weights of them were not window.
        ReceiptBroken: they cannot be read.
    """
    name = "envelope" if kind is EnvelopeSettings else "dpe"
    missing = tuple(path for path in recorded.withheld if path.startswith(f"{name}."))
    if missing:
        raise Withheld(missing)
    tree: dict[str, Any] = {}
    for path, value in getattr(recorded, name).items():
        *rooms, last = path.split(".")
        at = tree
        for room in rooms:
            at = at.setdefault(room, {})
        at[last] = value
    try:
        settings: Kind = kind.model_validate(tree)
    except (ValidationError, CRPError, TypeError) as error:
        reason = f"cannot be read: {type(error).__name__}"
        raise ReceiptBroken(f"content.settings.{name}", reason) from None
    return settings


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by their path."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping) and value and not prefix:
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, Part):
            flat |= _flat(value.model_dump(), f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _is_weight(path: str) -> bool:
    return path.endswith(_WEIGHTS) or path.startswith("amplifiers.")


def _written(value: Any) -> Any:
    """A setting's value without floats: those are decimals, which are read back to the same."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(name): _written(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_written(inner) for inner in value]
    return value


# Recorded instead of a prompt that is system prompt, history and question.
CONVERSATION: Final = "conversation"
_OF_REJECTED: Final = ("said", "wrong", "reason")


def examined_told(
    window: WindowValues,
    examined: Examination,
    texts: TextLeaves,
    question: int,
    shown: Sequence[tuple[TextPart, ...]],
) -> dict[str, Any]:
    """What the answer was examined beside, and what engines said."""
    dossier = examined.dossier
    asked = window.asked
    spoken = (asked.system_prompt, *(message.content for message in asked.history), asked.query)
    conversation = BETWEEN.join(part for part in spoken if part)
    prompt: int | str | None = None
    if dossier.prompt:
        same = dossier.prompt == conversation
        prompt = CONVERSATION if same else texts.add("prompt", dossier.prompt, follows=True)
    answer = texts.number("answer")
    if dossier.answer != texts.leaves[answer].text:
        answer = texts.add("examined", dossier.answer, of=texts.of, follows=True)
    run = examined.judged
    judged = None if run is None else judged_told(run, dossier, texts)
    return declared(
        Examined,
        dossier,
        answer=answer,
        question=question if dossier.question else None,
        passages=_evidence(window, dossier, texts, shown),
        needs=_needs(dossier, asked, texts),
        prior=[
            declared(PriorTold, prior, leaf=texts.add(f"prior/{n}", prior.text, follows=True))
            for n, prior in enumerate(dossier.prior, start=1)
        ],
        rejected=_rejected(dossier, texts),
        prompt=prompt,
        system=declared(RegisteredSystem, dossier.system),
        engines=declared(
            EnginesTold,
            examined.engines,
            embedder_thresholds=_decimals(examined.engines.embedder_thresholds),
            verifier_thresholds=_decimals(examined.engines.verifier_thresholds),
        ),
        signals=[{"at": entry.at, "value": entry.value} for entry in examined.entries],
        flags=list(window.report.flags[window.flags_before :]),
        judged=judged,
    )


def _evidence(
    window: WindowValues, dossier: Dossier, texts: TextLeaves, shown: Sequence[tuple[TextPart, ...]]
) -> list[dict[str, Any]] | None:
    """What the answer was examined beside; None for the facts of the envelope."""
    if window.fit is None or window.envelope is None:
        return _passages(dossier, shown)
    packed = {fact.fact_id: fact for fact in window.envelope.facts}
    if dossier.passages == tuple((fact.fact_id, fact.content) for fact in window.envelope.facts):
        return None
    candidates = {candidate.fact_id: candidate for candidate in window.fit.candidates.facts}
    pieces: list[tuple[TextPart, ...]] = []
    for number, (name, text) in enumerate(dossier.passages, start=1):
        if not text:
            # An earlier answer of a model is shown, but is no evidence.
            pieces.append(())
        elif name in packed:
            leaf = texts.fact(name, candidates[name].content)
            spans = packed[name].spans
            own = spans and spans != candidates[name].spans
            pieces.append(tuple(stretches(leaf, spans)) if own else (leaf,))
        elif name in window.sources:
            pieces.append((texts.fact(name, text, window.sources[name]),))
        else:
            pieces.append((_spoken(text, f"evidence/{number}", texts),))
    return _passages(dossier, pieces)


def _passages(dossier: Dossier, shown: Sequence[tuple[TextPart, ...]]) -> list[dict[str, Any]]:
    """What the answer was examined beside, where no envelope tells it."""
    importances: Sequence[float | None] = dossier.importances or [None] * len(dossier.passages)
    return [
        {
            "id": name,
            "pieces": [list(p) if isinstance(p, tuple) else p for p in pieces],
            "importance": outline.fixed(importance),
        }
        for (name, _), pieces, importance in zip(dossier.passages, shown, importances, strict=True)
    ]


def _rejected(dossier: Dossier, texts: TextLeaves) -> list[dict[str, Any]]:
    """Claims that sub-agents' reports flag; they quote a model, and facts."""
    claims = []
    for number, claim in enumerate(dossier.rejected, start=1):
        name = f"rejected/{number}"
        more = {
            field: texts.add(f"{name}/{field}", text, of=texts.of, follows=True)
            for field in _OF_REJECTED
            if (text := getattr(claim, field))
        }
        leaf = texts.add(name, claim.text, of=texts.of, follows=True)
        blank = dict.fromkeys(_OF_REJECTED)
        claims.append(declared(RejectedTold, claim, **blank | more, leaf=leaf))
    return claims


def _needs(dossier: Dossier, asked: Asked, texts: TextLeaves) -> list[int]:
    """Leaves of what the answer was to cover; the parts of the question keep their own leaves."""
    leaves = []
    for number, need in enumerate(dossier.sub_queries, start=1):
        known = "request" if need == asked.query else texts.named(need, "need/")
        leaves.append(texts.number(known) if known else texts.add(f"cover/{number}", need))
    return leaves


def judged_told(run: JudgeRun, dossier: Dossier, texts: TextLeaves) -> dict[str, Any]:
    """A judge's run; texts that the judge may quote get leaves where they have none."""
    content = declared(
        JudgedTold,
        run,
        left_out=[[fact.fact_id, fact.reason] for fact in run.left_out],
        calls=[_judge_call(call, f"judge/{n}", texts) for n, call in enumerate(run.calls, start=1)],
        conversation=[],
        instructions=None,
    )
    if run.calls:
        content["conversation"] = [
            {"role": role, "leaf": _spoken(text, f"conversation/{n}", texts)}
            for n, (role, text) in enumerate(dossier.conversation, start=1)
        ]
        if dossier.instructions:
            content["instructions"] = _known_leaf(dossier.instructions, "system-prompt", texts)
            if content["instructions"] is None:
                content["instructions"] = texts.add(
                    "instructions", dossier.instructions, of=texts.of, follows=True
                )
    return content


def _judge_call(call: JudgeExchange, name: str, texts: TextLeaves) -> dict[str, Any]:
    content = declared(
        JudgeCallTold,
        call,
        # As printed text, since a call of a small model costs less than a millionth.
        cost=None if call.cost_usd is None else repr(float(call.cost_usd)),
        # It quotes facts, the question, the answer, and what was said before.
        leaf=texts.add(name, call.reply, of=texts.of, follows=True) if call.reply else None,
    )
    if not call.pieces:
        del content["pieces"]
    return content


def _spoken(text: str, name: str, texts: TextLeaves) -> int:
    """The leaf of an earlier message: that of the history, of the question, or one of its own."""
    for begins in ("history/", "request"):
        known = _known_leaf(text, begins, texts)
        if known is not None:
            return known
    return texts.add(name, text, of=texts.of, follows=True)


def _known_leaf(text: str, begins: str, texts: TextLeaves) -> int | None:
    name = texts.named(text, begins)
    return texts.number(name) if name else None


def _decimals(values: Mapping[str, float]) -> dict[str, str]:
    return {name: repr(float(value)) for name, value in values.items()}
