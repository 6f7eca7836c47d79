"""Claims, findings and the report of the provenance engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from pydantic import Field, PrivateAttr

from crp_integrations.dpe.repair import Repair, repair
from crp_integrations.dpe.report_html import passages_of, report_html
from crp_integrations.dpe.report_parts import (
    Coherence,
    Completeness,
    CrossContradiction,
    Flow,
    JudgeRun,
    Quotation,
    Repetition,
)
from crp_integrations.markup import fragment, page
from crp_integrations.records import Part, Record
from crp_integrations.vocabulary import (
    AiActClass,
    Attribution,
    ChainIntegrity,
    Checked,
    ClaimStatus,
    ClaimType,
    DistortionType,
    ErrorKind,
    GroundingMode,
    PersonalCategory,
    RepetitionLevel,
    RiskLevel,
    Severity,
    Verification,
)

if TYPE_CHECKING:
    from crp_integrations.envelope.records import Envelope
    from crp_integrations.fabric.records import Fact


class Omission(Part):
    """An important fact of the envelope that the answer does not use.

    Spec: CRP-SPEC-005 §12.2

    Attributes:
        importance: importance of the fact, [0, 1].
        score: best similarity of a sentence of the answer with the fact, [0, 1].
    """

    fact_id: str
    importance: float = Field(ge=0.0, le=1.0)
    severity: Severity
    score: float = Field(ge=0.0, le=1.0)


class PersonalDatum(Part):
    """A place that contains personal data; its text is never stored here.

    Spec: CRP-SPEC-005 §13.2

    Attributes:
        kind: kind of the data, such as `email`, `phone`, `iban` or `person`.
        where: `prompt` or `answer`.
        start, end: character offsets in that text.
        score: the recogniser's confidence, [0, 1].
        in_question: whether the question, or a message before it, contains the same datum.
    """

    category: PersonalCategory
    kind: str
    where: str
    start: int
    end: int
    recogniser: str
    score: float = Field(ge=0.0, le=1.0)
    in_question: bool = False


class PersonalData(Part):
    """Stage 11: personal data in prompt and answer, and the kinds that were looked for.

    Attributes:
        checked: for each category the recognisers that looked for it.
        not_checked: kinds that no recogniser looked for; never reported as clean.
        warning: the compliance warning of §13.3; empty for none.
        truncated: True if more places were found than are listed.
    """

    found: tuple[PersonalDatum, ...] = ()
    checked: dict[str, tuple[str, ...]] = {}
    not_checked: tuple[str, ...] = ()
    warning: str = ""
    truncated: bool = False


class Classification(Part):
    """Stage 12: the call's regulatory class and the controls that evidence meets.

    Attributes:
        eu_ai_act_class: UNKNOWN for a system that is not registered.
        nist_tier: a tier such as `TIER-2`; `UNKNOWN` without a registration.
        controls: for each control of the catalogue the evidence that fulfils it; empty for none.
        failed: True if the policy engine failed; the class is then UNKNOWN and unchecked.
        halts: True if the answer must not be shown (§14.2).
        engine: the policy engine, and the catalogue's name and digest.
    """

    eu_ai_act_class: AiActClass = AiActClass.UNKNOWN
    nist_tier: str = "UNKNOWN"
    iso_42001_controls: tuple[str, ...] = ()
    controls: dict[str, tuple[str, ...]] = {}
    controls_met: int = 0
    controls_total: int = 0
    failed: bool = False
    halts: bool = False
    engine: str = ""


COMPARISON: Final = "exact comparison"
"""Value of `checked_by` if claims were only compared word for word, and no model read them."""


class Entity(Part):
    """A named thing or typed value within a claim.

    Attributes:
        kind: `name`, `number`, `date`, `quantity`, `citation` or `url`.
    """

    text: str
    kind: str
    start: int
    end: int


class Evidence(Part):
    """The place in the context that supports a judgement.

    Attributes:
        fact_id: id of the fact, or `context-1` … for plain strings.
        start, end: character offsets in the fact's text as it was shown.
        score: strength of the support, [0, 1].
        engine: name of the engine that found it.
    """

    fact_id: str
    start: int
    end: int
    score: float = Field(ge=0.0, le=1.0)
    engine: str


REJECTED: Final = "rejected"
"""Kind of a finding on a claim that repeats a claim rejected by a sub-agent's report."""

HIDDEN_TEXT: Final = "HIDDEN_TEXT"
"""Kind of a finding on characters of an answer that are invisible to a reader."""

CONTRADICTION: Final = "contradiction"
"""Kind of a finding on a claim that an earlier claim of the same answer contradicts."""

DOUBTS: Final = (HIDDEN_TEXT, CONTRADICTION)
"""Kinds of findings that make an answer at least MEDIUM whatever the claim's status."""

NO_SENTENCE: Final = -1
"""Sentence number of a claim that a judge found outside of the numbered claims."""

LONGEST: Final = 400


class RejectedClaim(Part):
    """A claim that the report on a sub-agent's answer flags.

    Attributes:
        text: the claim in a form that can be read alone.
        said: the sub-agent's words, which may be a part of a sentence.
        wrong: the wrong words in `said`; empty if they are not known.
        reason: why it was rejected, in the words of the sub-agent's report.
        window_id: window of that report; empty if it was not sealed.
    """

    text: str = Field(max_length=LONGEST)
    said: str = Field(default="", max_length=LONGEST)
    wrong: str = Field(default="", max_length=LONGEST)
    reason: str = Field(default="", max_length=LONGEST)
    window_id: str = ""


class Finding(Part):
    """One defect that a stage found in one claim.

    Attributes:
        stage: number of the stage.
        kind: a distortion type such as `NUMBER_CHANGED`, `QUOTE_NOT_FOUND`, `CITATION_WRONG`,
            `HIDDEN_TEXT`, `rejected`, `contradiction`; in `literal` `fabrication` as well.
        start, end: character offsets in the answer of the wrong text.
        evidence: the place where the context says otherwise; None if it says nothing.
        expected: the value in the context; None if it has none.
        reason: why a sub-agent's report rejected the claim, the hidden text, or the earlier claim;
            empty for other kinds.
        other_claim_id: the earlier claim of a `contradiction`.
    """

    stage: int
    kind: str
    claim_id: str
    start: int
    end: int
    evidence: Evidence | None = None
    expected: str | None = None
    reason: str = ""
    other_claim_id: str | None = None

    @property
    def doubts(self) -> bool:
        """Whether it makes the answer MEDIUM without a status: hidden text or a contradiction."""
        return self.kind in DOUBTS


class Claim(Part):
    """An assertion that can be judged on its own, with what the stages found.

    Spec: CRP-SPEC-005 §3.2

    Attributes:
        claim_id: `c1`, `c2`, … in order of the answer.
        text: the answer's characters from `start` to `end`.
        reads_as: the claim as it is judged alone; a claim without a subject is preceded by the
            subject of an earlier clause of its sentence.
        specificity: how specific it is, [0, 1].
        attribution: origin of the claim; None for claims that are not FACTUAL.
        similarity: the score that decided the attribution, [0, 1].
        entailment, contradiction, neutral: probabilities of a verifier, or 1 and 0 by the status;
            None for an unread claim.
        status: result of the check (decision D13).
        error: kind of error of a CONTRADICTED or UNSUPPORTED claim; None for no error.
        wrong: offsets in the answer of the wrong words; None if they are not known.
        quotations: words of the evidence for the status.
        reason: the judge's reason, in one sentence; empty for none.
        disputed: True if the exact comparison finds it wrong, but a judge supports it.
        fix: the judge's correction; empty if the claim can only be removed, None for no correction.
        unfounded: the first value or name of `fix` that stands nowhere, so that the correction
            does not count; empty for none.
        judge: name of the judge that decided, if a second one was asked; else empty.
        hints: figures, names, dates and identifiers of an unread claim that are in neither the
            evidence nor the question. A hint is not a finding, and does not change the level.
    """

    claim_id: str
    text: str
    start: int
    end: int
    reads_as: str
    sentence_index: int
    claim_type: ClaimType
    specificity: float = Field(ge=0.0, le=1.0)
    entities: tuple[Entity, ...] = ()
    attribution: Attribution | None = None
    similarity: float | None = None
    checked: Checked
    entailment: float | None = None
    contradiction: float | None = None
    neutral: float | None = None
    evidence: tuple[Evidence, ...] = ()
    findings: tuple[Finding, ...] = ()
    status: ClaimStatus = ClaimStatus.NOT_CHECKED
    error: ErrorKind | None = None
    wrong: tuple[int, int] | None = None
    quotations: tuple[Quotation, ...] = ()
    reason: str = ""
    disputed: bool = False
    fix: str | None = None
    unfounded: str = ""
    judge: str = ""
    hints: tuple[Entity, ...] = ()

    @property
    def flagged(self) -> bool:
        """Whether the evidence contradicts the claim or does not support it."""
        return self.status in (ClaimStatus.CONTRADICTED, ClaimStatus.UNSUPPORTED)

    @property
    def rejection(self) -> Finding | None:
        """The finding that the claim repeats one rejected by a sub-agent's report, or None."""
        return next((finding for finding in self.findings if finding.kind == REJECTED), None)


class ClaimCounts(Part):
    """The number of claims of an answer that were read, supported, wrong and unread.

    Claims that assert nothing about the matter (`NOT_CHECKABLE`) are not counted.

    Attributes:
        read: claims settled by a judge, a verifier or word for word; `supported` + `wrong`.
        wrong: contradicted or unsupported claims.
        unread: claims without a result.
    """

    read: int = Field(default=0, ge=0)
    supported: int = Field(default=0, ge=0)
    wrong: int = Field(default=0, ge=0)
    unread: int = Field(default=0, ge=0)

    @property
    def total(self) -> int:
        """All claims that assert something."""
        return self.read + self.unread

    def __str__(self) -> str:
        return (
            f"{self.read} of {self.total} claims read: {self.supported} supported, "
            f"{self.wrong} wrong; {self.unread} unread"
        )


class StageRun(Part):
    """A stage that ran, and the engine that it ran with."""

    number: int
    name: str
    engine: str


class Quality(Part):
    """The full results of stages 6 to 9."""

    coherence: Coherence = Coherence()
    repetition: Repetition = Repetition()
    completeness: Completeness = Completeness()
    flow: Flow = Flow()


class Examined(NamedTuple):
    """The texts of an examination: the answer, the question, and the passages in their order."""

    answer: str
    question: str
    passages: tuple[str, ...]


class Report(Record):
    """The engine's findings on one answer, under the specification's field names.

    Spec: CRP-SPEC-005 §15.2

    Attributes:
        grounding_pct: CONTEXT_GROUNDED over all claims that assert something, 1.0 when there are
            none; over FACTUAL claims in `literal`.
        attribution_breakdown: count of each attribution over the factual claims.
        quality: full results of stages 6 to 9; the specification has only the fields before it.
        rqa_score: the quality score of §18.2, [0, 1], higher is better (decision D9).
        base_score: the composite before amplifiers (D8).
        composite_score: the specification's composite, [0, 1], higher is worse.
        risk_score: the score of the level, [0, 1], higher is worse: computed from the claims'
            statuses, or the composite in `literal` (D13); None for UNKNOWN.
        claim_counts: number of claims read, supported, wrong and unread.
        verification: how much of the answer was read.
        checked_by: what decided on the claims: `exact comparison`, a verifier's name, or `judge`
            with the model's name.
        flagged: True if the level is MEDIUM or above.
        reasons: at most five sentences on the level, gravest first; empty for LOW.
        judge: the judge's calls and replies; None if no judge was configured.
        checked_share: characters of claims that were read over those of all that assert
            something; 1.0 if none does, 0.0 for an answer without text.
        flags: remarks such as `claims=0`.
        stages: the stages that ran, with their engines; stages not listed did not run.
        thresholds: every number that the verdict depended on.
        response_content_hash: SHA-256 of the answer's text.
        report_hash: hash of this report's canonical JSON without `report_hash`, `hmac`
            and `chain_integrity`; it goes into the window's HMAC.
    """

    SCHEMA = "dpe-report/1"

    session_id: str = ""
    window_id: str = ""
    window_number: int = 1
    timestamp: str = ""
    grounding_mode: GroundingMode
    claims_total: int
    claims_by_type: dict[str, int]
    attribution_dominant: Attribution | None
    attribution_breakdown: dict[str, int]
    grounding_pct: float
    unverifiable_pct: float
    fabrication_count: int
    distortion_count: int
    distortion_types: tuple[DistortionType, ...]
    contradiction_count: int
    contradiction_scope: str
    fidelity_score: float
    entailment_score: float
    contradiction_probability: float
    neutral_probability: float
    signals: dict[str, float]
    repetition_level: RepetitionLevel = RepetitionLevel.NONE
    repetition_overlap: float = 0.0
    completeness_score: float | None = None
    uncovered_sub_queries: tuple[str, ...] = ()
    flow_score: float = 1.0
    flow_remediation: str | None = None
    cross_window_contradictions: tuple[CrossContradiction, ...] = ()
    quality: Quality = Quality()
    rqa_score: float = 1.0
    base_score: float
    composite_score: float
    risk_score: float | None
    claim_counts: ClaimCounts = ClaimCounts()
    verification: Verification = Verification.UNREAD
    checked_by: str = COMPARISON
    flagged: bool
    reasons: tuple[str, ...] = ()
    judge: JudgeRun | None = None
    amplifiers_applied: tuple[str, ...] = ()
    risk_level: RiskLevel
    omission_summary: dict[str, int] = {}
    omissions: tuple[Omission, ...] = ()
    gdpr_pii_detected: bool = False
    personal: PersonalData = PersonalData()
    eu_ai_act_class: AiActClass = AiActClass.UNKNOWN
    nist_tier: str = "UNKNOWN"
    iso_42001_controls: tuple[str, ...] = ()
    classification: Classification = Classification()
    claims: tuple[Claim, ...]
    checked_share: float
    flags: tuple[str, ...] = ()
    stages: tuple[StageRun, ...]
    verifier: str
    embedder: str
    thresholds: dict[str, float]
    settings_digest: str = ""
    response_content_hash: str
    report_hash: str = ""
    hmac: str = ""
    chain_integrity: ChainIntegrity = ChainIntegrity.UNVERIFIED
    # The texts are no part of the record: they are neither stored, sent, hashed nor compared.
    _examined: Examined | None = PrivateAttr(default=None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.__dict__ == other.__dict__

    def about(self, examined: Examined) -> Self:
        """The report with the texts that it is on, which its JSON does not contain."""
        report = self.model_copy()
        report._examined = examined
        return report

    def changed(self, **fields: Any) -> Self:
        """Return a copy with some fields replaced and everything validated again."""
        report = super().changed(**fields)
        report._examined = self._examined
        return report

    def repair(self, answer: str | None = None) -> Repair:
        """The answer with its wrong claims corrected or removed; see `dpe.repair.repair`."""
        return repair(self, answer)

    @property
    def answer(self) -> str | None:
        """The answer that the report is on; None for a report that was read from JSON."""
        return self._examined.answer if self._examined else None

    @property
    def examined(self) -> Examined | None:
        """The texts that the report is on; None for a report that was read from JSON."""
        return self._examined

    @property
    def was_read(self) -> bool:
        """Whether a judge or a verifier, not only the exact comparison, decided on the claims."""
        return self.checked_by != COMPARISON

    @property
    def is_settled(self) -> bool:
        """Whether every claim was read and is supported, so that no judge is needed."""
        counts = self.claim_counts
        return counts.supported > 0 and not (counts.wrong or counts.unread)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings in order of the answer."""
        return tuple(finding for claim in self.claims for finding in claim.findings)

    def to_html(self, context: Envelope | Sequence[Fact | str] = ()) -> str:
        """A page with each claim next to its evidence.

        Args:
            context: an envelope, facts, or the texts in the order in which the model saw them;
                quotations are then shown with their sentence.
        """
        return page("Answer report", report_html(self, passages_of(context)))

    def _repr_html_(self) -> str:
        return fragment(report_html(self, {}))
