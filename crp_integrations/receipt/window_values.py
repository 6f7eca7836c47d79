"""The values of one window from which a receipt is made, and their conversion to content.

Texts of an examined answer become leaves, numbers of settings become decimals.
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
from crp_integrations.dpe.repair import Edit
from crp_integrations.dpe.report_parts import JudgeExchange, JudgeRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.envelope.budget import EnvelopeInputs
from crp_integrations.envelope.prompt import BETWEEN
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import CRPError, ReceiptBroken
from crp_integrations.fabric.records import Source
from crp_integrations.messages import Message, ModelCall
from crp_integrations.policy.records import Policy, PolicyJudgement
from crp_integrations.policy.verdict import AnswerTerms
from crp_integrations.receipt import outline
from crp_integrations.receipt.leaves import Part as TextPart
from crp_integrations.receipt.leaves import TextLeaves, stretches
from crp_integrations.receipt.outline import declared
from crp_integrations.receipt.predicate import (
    EnginesRecord,
    ExaminationRecord,
    JudgeCallRecord,
    JudgeRecord,
    PriorAnswerRecord,
    RegisteredSystem,
    RejectedClaimRecord,
    SettingsInForce,
)
from crp_integrations.records import Part
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import GroundingMode, Oversight, QualityTier, Strategy


@dataclass(frozen=True, slots=True)
class Asked:
    """The request: the question, and the texts and parameters sent with the context.

    Attributes:
        instructions: texts added to the system message for this call, for example by remedies.
        results: how many of the history's last messages were sent after the question.
        shaped: True if `prompt@1` built the messages; False if the caller did.
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
    """The judgement of the policies in force on an answer, and the decision.

    Attributes:
        judgement, reported: results of the enforced and the report-only policy; None without one.
        decision: `deliver`, `withhold`, `unreachable`, or empty if nothing was judged.
        safety_budget: remaining safety budget before the answer, [0, 1].
        terms: conditions on the answer besides the policies; None if there were none.
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
        digest: digest of the whole tree of settings; equal digests mean equal settings.
        disclose: whether to record the operator's own weights; they may be a trade secret.
    """

    digest: str
    envelope: EnvelopeSettings = field(default_factory=EnvelopeSettings, compare=False)
    dpe: DpeSettings = field(default_factory=DpeSettings, compare=False)
    disclose: bool = False


@dataclass(frozen=True, slots=True)
class OriginalValues:
    """An answer before its repair: its text, its report and the input of its examination.

    Attributes:
        report: the report without a window's identity.
        flags_before: number of the report's flags that the examination set.
    """

    text: str
    report: Report
    examined: Examination | None
    flags_before: int
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class WindowValues:
    """All values of one window that go into its receipt.

    Attributes:
        fit: inputs of its envelope; None if there was none or another package built it.
        calls: calls for the answer, in order; the first one contains the envelope.
        text: the model's text; empty without a reply.
        examined: input and signals of the examination; None if nothing was examined.
        flags_before: number of the report's flags that the examination set; later ones were added.
        sources: source id by fact id, for evidence that is not in this window's envelope.
        asker: tenant, and pseudonym of the subject, who asked.
        documents: registry entries of the sources of what was shown.
        judge_prompt: system message of the judge; empty without one.
        state: further hashes of the window, recorded in a leaf of their own.
        original: the answer before its repair; None if it was not repaired.
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
    asker: Mapping[str, str] = field(default_factory=dict)
    documents: tuple[Source, ...] = ()
    judge_prompt: str = ""
    state: Mapping[str, str] = field(default_factory=dict)
    original: OriginalValues | None = None

    def sealed(self, report: Report, **state: str) -> WindowValues:
        """The window with its final report, and with more hashes added to `state`."""
        if self.original is not None:
            state["original_response_hash"] = sha256(self.original.text)
            state["original_report_hash"] = self.original.report.report_hash
        return replace(self, report=report, state={**self.state, **state})


Kind = TypeVar("Kind", EnvelopeSettings, DpeSettings)
PRESETS: Final = ("default", "literal")
# Settings used only before scoring, or for another kind of context: a replay does not need them.
_UNUSED: Final = frozenset({"assembly", "decompose", "graph", "reuse", "screening"})
_UNUSED_PATHS: Final = re.compile(r"hybrid\.(?!enabled$|whole_share$|passed_over$|stretches_seen$)")
# Suffixes of the names of settings that are weights.
_WEIGHTS: Final = ("_weight", "_factor", "_shift")


class WithheldSettings(Exception):
    """Settings cannot be restored, because the receipt does not disclose some weights."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Take the names of the weights."""
        super().__init__(
            f"{', '.join(names)} were not disclosed; a replay needs the operator's settings"
        )


# Cached, since the same settings apply to many windows.
@lru_cache(maxsize=16)
def disclosed(in_force: InForce) -> dict[str, Any]:
    """The settings as content, without withheld weights."""
    withheld: list[str] = []
    parts = {}
    for name, settings in (("envelope", in_force.envelope), ("dpe", in_force.dpe)):
        published = [_flat(type(settings).preset(preset).model_dump()) for preset in PRESETS]
        own = _flat(settings.model_dump(exclude=set(_UNUSED)))
        own = {path: value for path, value in own.items() if not _UNUSED_PATHS.match(path)}
        for path, value in own.items():
            known = any(path in preset and preset[path] == value for preset in published)
            if _is_weight(path) and not known and not in_force.disclose:
                withheld.append(f"{name}.{path}")
        hidden = {path.removeprefix(f"{name}.") for path in withheld if path.startswith(name)}
        parts[name] = {path: _plain(value) for path, value in own.items() if path not in hidden}
    return {"digest": in_force.digest, **parts, "withheld": withheld}


def settings_from_content(kind: type[Kind], recorded: SettingsInForce) -> Kind:
    """Read the settings of an envelope or of the provenance engine from content.

    Raises:
        WithheldSettings: the receipt does not disclose some of their weights.
        ReceiptBroken: they cannot be read.
    """
    name = "envelope" if kind is EnvelopeSettings else "dpe"
    missing = tuple(path for path in recorded.withheld if path.startswith(f"{name}."))
    if missing:
        raise WithheldSettings(missing)
    tree: dict[str, Any] = {}
    for path, value in getattr(recorded, name).items():
        *sections, last = path.split(".")
        at = tree
        for section in sections:
            at = at.setdefault(section, {})
        at[last] = value
    try:
        settings: Kind = kind.model_validate(tree)
    except (ValidationError, CRPError, TypeError) as error:
        reason = f"cannot be read: {type(error).__name__}"
        raise ReceiptBroken(f"content.settings.{name}", reason) from None
    return settings


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path; nested mappings are flattened one level deep."""
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


def _plain(value: Any) -> Any:
    """A setting's value as JSON, with floats as decimals so that they are restored exactly."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    return value


# Recorded instead of a prompt that consists of system prompt, history and question.
CONVERSATION: Final = "conversation"
_OF_REJECTED: Final = ("said", "wrong", "reason")


def examination_content(
    window: WindowValues,
    examined: Examination,
    texts: TextLeaves,
    question: int,
    shown: Sequence[tuple[TextPart, ...]],
    answer: int,
) -> dict[str, Any]:
    """The input of the examination and the engines' results, as content."""
    dossier = examined.dossier
    asked = window.asked
    spoken = (asked.system_prompt, *(message.content for message in asked.history), asked.query)
    conversation = BETWEEN.join(part for part in spoken if part)
    prompt: int | str | None = None
    if dossier.prompt:
        same = dossier.prompt == conversation
        prompt = CONVERSATION if same else texts.add("prompt", dossier.prompt, follows=True)
    if dossier.answer != texts.leaves[answer].text:
        answer = texts.add("examined", dossier.answer, of=texts.of, follows=True)
    run = examined.judged
    judged = None if run is None else judge_content(run, dossier, texts)
    return declared(
        ExaminationRecord,
        dossier,
        answer=answer,
        question=question if dossier.question else None,
        passages=_evidence(window, dossier, texts, shown),
        needs=_needs(dossier, asked, texts),
        prior=[
            declared(
                PriorAnswerRecord, prior, leaf=texts.add(f"prior/{n}", prior.text, follows=True)
            )
            for n, prior in enumerate(dossier.prior, start=1)
        ],
        rejected=_rejected(dossier, texts),
        prompt=prompt,
        system=declared(RegisteredSystem, dossier.system),
        engines=declared(
            EnginesRecord,
            examined.engines,
            embedder_thresholds=_decimals(examined.engines.embedder_thresholds),
            verifier_thresholds=_decimals(examined.engines.verifier_thresholds),
        ),
        signals=[{"at": entry.at, "value": entry.value} for entry in examined.entries],
        flags=list(window.report.flags[window.flags_before :]),
        judged=judged,
    )


def repair_content(
    window: WindowValues,
    original: OriginalValues,
    texts: TextLeaves,
    question: int,
    shown: Sequence[tuple[TextPart, ...]],
) -> dict[str, Any]:
    """The answer before its repair, its report and examination, and the edits, as content."""
    leaf = texts.add("original", original.text, of=texts.of, follows=True)
    edits = [
        {
            "start": edit.start,
            "end": edit.end,
            "claim": edit.claim,
            "leaf": texts.add(f"edit/{n}", edit.new, of=texts.of, follows=True)
            if edit.new
            else None,
        }
        for n, edit in enumerate(original.edits, start=1)
    ]
    before = replace(window, report=original.report, flags_before=original.flags_before)
    # Leaves of its examination that differ from those of the final one get names of their own.
    texts.suffix = "/original"
    examined = (
        examination_content(before, original.examined, texts, question, shown, leaf)
        if original.examined
        else None
    )
    texts.suffix = ""
    needs = original.examined.dossier.sub_queries if original.examined else ()
    return {
        "original": leaf,
        "edits": edits,
        "examined": examined,
        "report": outline.report(original.report, needs),
    }


def _evidence(
    window: WindowValues, dossier: Dossier, texts: TextLeaves, shown: Sequence[tuple[TextPart, ...]]
) -> list[dict[str, Any]] | None:
    """The passages of the evidence; None if they are the facts of the envelope."""
    if window.fit is None or window.envelope is None:
        return _passages(dossier, shown)
    packed = {fact.fact_id: fact for fact in window.envelope.facts}
    if dossier.passages == tuple((fact.fact_id, fact.content) for fact in window.envelope.facts):
        return None
    candidates = {candidate.fact_id: candidate for candidate in window.fit.candidates.facts}
    pieces: list[tuple[TextPart, ...]] = []
    for number, (name, text) in enumerate(dossier.passages, start=1):
        if not text:
            # The context contains an earlier answer of a model, but it is not evidence.
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
    """Passages of the evidence that do not come from an envelope."""
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
    """Claims that sub-agents' reports flag; their texts may quote a model and facts."""
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
        claims.append(declared(RejectedClaimRecord, claim, **blank | more, leaf=leaf))
    return claims


def _needs(dossier: Dossier, asked: Asked, texts: TextLeaves) -> list[int]:
    """Leaves of the questions that the answer had to cover; sub-questions already have leaves."""
    leaves = []
    for number, need in enumerate(dossier.sub_queries, start=1):
        known = "request" if need == asked.query else texts.named(need, "need/")
        leaves.append(texts.number(known) if known else texts.add(f"cover/{number}", need))
    return leaves


def judge_content(run: JudgeRun, dossier: Dossier, texts: TextLeaves) -> dict[str, Any]:
    """The calls of a judge; texts that it may quote get leaves if they have none."""
    content = declared(
        JudgeRecord,
        run,
        left_out=[[fact.fact_id, fact.reason] for fact in run.left_out],
        calls=[_judge_call(call, f"judge/{n}", texts) for n, call in enumerate(run.calls, start=1)],
        conversation=[],
        instructions=None,
        system=None,
    )
    content["conversation"] = [
        {"role": role, "leaf": _spoken(text, f"conversation/{n}", texts)}
        for n, (role, text) in enumerate(dossier.conversation, start=1)
    ]
    if not run.second:
        del content["second"]
    if run.calls and dossier.instructions:
        content["instructions"] = _known_leaf(dossier.instructions, "system-prompt", texts)
        if content["instructions"] is None:
            content["instructions"] = texts.add(
                "instructions", dossier.instructions, of=texts.of, follows=True
            )
    return content


def _judge_call(call: JudgeExchange, name: str, texts: TextLeaves) -> dict[str, Any]:
    content = declared(
        JudgeCallRecord,
        call,
        # As text, since a call of a small model can cost less than a millionth.
        cost=None if call.cost_usd is None else repr(float(call.cost_usd)),
        # The reply may quote facts, the question, the answer and earlier messages.
        leaf=texts.add(name, call.reply, of=texts.of, follows=True) if call.reply else None,
    )
    for name in ("claims", "pieces", "second"):
        if not content[name]:
            del content[name]
    return content


def _spoken(text: str, name: str, texts: TextLeaves) -> int:
    """The leaf of an earlier message: one of the history, the question's, or a new one."""
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
