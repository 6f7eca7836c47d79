"""Replay of the examination, from the recorded results of engines and calls of a judge.

Spec: CRP-SPEC-005 §6.2, §15.4 (decision D13)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from crp_integrations.dpe.catalogue import catalogue as shipped
from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.engine_signals import Compared, SignalsMissing
from crp_integrations.dpe.judge import messages as words
from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.dpe.judge.reply import read_reply
from crp_integrations.dpe.judge.verdict import concluded, of_judge
from crp_integrations.dpe.pipeline import Examination, again, examine, stand_ins
from crp_integrations.dpe.records import Claim, Report
from crp_integrations.dpe.repair import repair
from crp_integrations.dpe.report_parts import JudgeExchange, JudgeRun
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.stages.compliance import VERDICT
from crp_integrations.dpe.stages.report import finish
from crp_integrations.errors import ConfigError, CRPError, ReceiptBroken
from crp_integrations.messages import Message
from crp_integrations.receipt import outline
from crp_integrations.receipt.predicate import Content, ExaminationRecord
from crp_integrations.receipt.reconstruction import MissingTextError, Texts, examination_of, sealed
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_records import (
    Difference,
    NotRun,
    Outcome,
    ReplayTools,
    first,
    recorded_settings,
)
from crp_integrations.scores import SCALE
from crp_integrations.seals import sha256, sha256_hex

# Prefixes of the names of the signals that each engine gives.
VERIFIER: Final = ("entailment.", "coherence.")
EMBEDDER: Final = (
    "attribution.cosines", "attribution.windows", "repetition.", "completeness.", "flow.",
    "omission.",
)  # fmt: skip
RECOGNISERS: Final = "personal."


def answer(content: Content, texts: Texts) -> Outcome:
    """Compare the answer's hash with the one in the window's seal."""
    recorded = str(sealed(texts).get("response_hash", ""))
    if not recorded:
        raise NotRun("the window has no seal")
    return first(recorded, sha256(texts.named("answer")), "seal.response_hash"), ""


@dataclass(frozen=True)
class Verdict:
    """A receipt's examination, repeated on first use.

    Attributes:
        original: whether it is that of the answer before its repair, whose report has no window.
    """

    receipt: Receipt
    content: Content
    texts: Texts
    tools: ReplayTools
    original: bool = False

    @property
    def examined(self) -> ExaminationRecord:
        """The recorded input of the examination."""
        if self.content.examined is None:
            raise NotRun("nothing was examined")
        return self.content.examined

    @cached_property
    def examination(self) -> Examination:
        """The recorded input of the examination, with its texts."""
        return examination_of(self.content, self.examined, self.texts)

    @cached_property
    def screened(self) -> Report | Difference:
        """The report of the stages without a model call, or why it cannot be made."""
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
        settings = settings_of(self.content, self.tools)
        try:
            flagged = with_judge(made, self.examination, self.examined.flags, settings)
        except ConfigError as error:
            raise ReceiptBroken("content.examined.judged.language", str(error)) from None
        whole = _classified(flagged, self.content)
        if self.original:
            return finish(whole, settings_digest=self.content.settings.digest)
        return _named(whole, self.receipt, self.content)


def with_judge(
    made: Report, examination: Examination, flags: Sequence[str], settings: DpeSettings
) -> Report:
    """The report with the recorded result of its judge, and with the flags added to it."""
    run = examination.judged
    if run is None:
        return made.changed(flags=(*made.flags, *flags))
    report = concluded(made, examination.dossier, run, settings)
    own = report.flags[len(made.flags) :]
    remaining = [flag for flag in flags if not of_judge(flag) or flag in own]
    missing = [flag for flag in own if flag not in remaining]
    # `model_copy` skips validation, which these values do not need.
    return report.model_copy(update={"flags": (*made.flags, *remaining, *missing)})


def _classified(report: Report, content: Content) -> Report:
    """The report with the name of the catalogue that classified the use.

    The operator's own rules are not available here; their result is a recorded signal, like the
    results of other engines.
    """
    name = str(content.report["classification"]["engine"])
    own = report.classification.engine
    if not own or shipped().digest in name:
        return report
    stages = tuple(
        run.model_copy(update={"engine": name}) if run.engine == own else run
        for run in report.stages
    )
    classification = report.classification.model_copy(update={"engine": name})
    return report.model_copy(update={"classification": classification, "stages": stages})


def examination(verdict: Verdict) -> Outcome:
    """Make the report again from the engines' results; compare it, and its hash with the seal's.

    Spec: CRP-SPEC-005 §15.4
    """
    known = _sealed_report(verdict.texts)
    if known and verdict.content.examined is None:
        return Difference("content.examined", "none", f"the report {known} is sealed"), ""
    report = verdict.report
    if isinstance(report, Difference):
        return report, ""
    needs = verdict.examination.dossier.sub_queries
    difference = first(verdict.content.report, outline.report(report, needs), "report")
    if difference is not None:
        return difference, ""
    if not known:
        return None, "the report was not sealed"
    return first(known, report.report_hash, "seal.report_hash"), ""


def repaired(verdict: Verdict) -> Outcome:
    """Repeat the original's examination, repair it again, and compare text and edits.

    Spec: CRP-SPEC-005 §15.4
    """
    content, texts = verdict.content, verdict.texts
    record = content.repaired
    if record is None:
        raise NotRun("the answer was not repaired")
    before = content.model_copy(update={"examined": record.examined, "report": record.report})
    own = Verdict(verdict.receipt, before, texts, verdict.tools, original=True)
    report = own.report
    if isinstance(report, Difference):
        return report, ""
    answer = texts.get(record.original)
    final = texts.get(verdict.examined.answer)
    if answer is None or final is None:
        raise NotRun("the text of the answer or of its original is not in this copy")
    hashes = sealed(texts)
    dossier = own.examination.dossier
    needs = dossier.sub_queries
    difference = (
        first(record.report, outline.report(report, needs), "repaired.report")
        or first(dossier.answer, answer, "repaired.original")
        or first(
            hashes.get("original_response_hash"), sha256(answer), "seal.original_response_hash"
        )
        or first(
            hashes.get("original_report_hash"), report.report_hash, "seal.original_report_hash"
        )
    )
    if difference is not None:
        return difference, ""
    made = repair(report, answer)
    edits = [(edit.start, edit.end, edit.claim, edit.new) for edit in made.edits]
    recorded = [
        (edit.start, edit.end, edit.claim, "" if edit.leaf is None else texts.get(edit.leaf))
        for edit in record.edits
    ]
    difference = first(recorded, edits, "repaired.edits") or first(final, made.text, "answer")
    return (difference, "") if difference is not None else judged(own)


def _sealed_report(texts: Texts) -> str:
    """The report's hash in the seal; empty for none, or if the seal's text is missing."""
    try:
        return str(sealed(texts).get("report_hash", ""))
    except MissingTextError:
        return ""


def judged(verdict: Verdict) -> Outcome:
    """Compare the prompts of a judge; its verdict is part of the report (see `examination`).

    Spec: CRP-SPEC-005 §6.2 (decision D13)
    """
    if verdict.examined.judged is None:
        raise NotRun("no judge was configured")
    if isinstance(verdict.screened, Difference):
        raise NotRun("the claims cannot be made again")
    run, dossier = verdict.examination.judged, verdict.examination.dossier
    if run is None or not run.calls:
        raise NotRun(f"the judge was not asked: {(run and run.skipped) or 'there is no claim'}")
    leaf = verdict.examined.judged.system
    system = None if leaf is None else verdict.texts.get(leaf)
    return _asked_again(run, dossier, verdict.screened.claims, system)


def catalogue(content: Content, texts: Texts, tools: ReplayTools) -> Outcome:
    """Classify the registered use again, if a policy engine is available."""
    examined = content.examined
    if examined is None or not examined.engines.policy:
        raise NotRun("the use was not classified")
    if tools.policy is None:
        raise NotRun("no policy engine is at hand")
    if shipped().digest not in content.policy.catalogue:
        raise NotRun("the catalogue in this version is another one")
    compared = _compared(content, examined, texts, tools, (VERDICT,))
    if compared.deviations:
        place = compared.deviations[0].entry
        return Difference(f"examined.signals[{place}]", "the recorded verdict", "another"), ""
    return None, "" if compared.asked else "nothing was asked"


def signals(content: Content, texts: Texts, tools: ReplayTools) -> Outcome:
    """Run the available engines again and compare their results within the tolerance."""
    examined = content.examined
    if examined is None:
        raise NotRun("nothing was examined")
    engines = examined.engines
    prefixes: list[str] = []
    if tools.verifier is not None and tools.verifier.identity == engines.verifier:
        prefixes += VERIFIER
    if tools.embedder is not None and tools.embedder.identity == engines.embedder:
        prefixes += EMBEDDER
    known = {identity for identity, _ in engines.recognisers}
    if tools.recognisers and {recogniser.identity for recogniser in tools.recognisers} == known:
        prefixes.append(RECOGNISERS)
    if not prefixes:
        raise NotRun("none of the engines that the receipt names is at hand")
    compared = _compared(content, examined, texts, tools, tuple(prefixes))
    for deviation in compared.deviations:
        if deviation.most is None or deviation.most > tools.tolerance:
            far = "another type" if deviation.most is None else f"{deviation.most / SCALE:.6f} away"
            place = f"examined.signals[{deviation.entry}] ({deviation.at})"
            return Difference(place, f"within {tools.tolerance / SCALE:.6f}", far), ""
    most = max((deviation.most or 0 for deviation in compared.deviations), default=0)
    return None, (
        f"{compared.asked} asked again, largest difference {most / SCALE:.6f}, "
        f"allowed {tools.tolerance / SCALE:.6f}"
    )


def _compared(
    content: Content,
    examined: ExaminationRecord,
    texts: Texts,
    tools: ReplayTools,
    prefixes: tuple[str, ...],
) -> Compared:
    recorded = examination_of(content, examined, texts)
    compared = Compared(recorded.entries, *prefixes)
    asked = {
        "policy": VERDICT, "verifier": VERIFIER[0], "embedder": EMBEDDER[0],
        "recognisers": RECOGNISERS,
    }  # fmt: skip
    at_hand = {name: getattr(tools, name) for name, prefix in asked.items() if prefix in prefixes}
    try:
        examine(
            recorded.dossier,
            settings=settings_of(content, tools),
            signals=compared,
            **{**stand_ins(recorded.engines), **at_hand},
        )
    except SignalsMissing:
        raise NotRun("the signals do not fit the examination") from None
    return compared


def settings_of(content: Content, tools: ReplayTools) -> DpeSettings:
    """The settings of the provenance engine in force."""
    return tools.dpe or recorded_settings(DpeSettings, content)


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


_AT = "content.examined.judged"
UNREADABLE = "Unreadable"


def _asked_again(
    run: JudgeRun, dossier: Dossier, claims: tuple[Claim, ...], system: str | None
) -> Outcome:
    """Build the prompt of each call again and compare its id and hash."""
    difference = first(run.passages, len(dossier.numbered_passages), "examined.judged.passages")
    if difference is not None:
        return difference, ""
    if system is not None:
        digest = sha256_hex(system)[: words.PROMPT_DIGITS]
        difference = first(run.prompt.rpartition("+")[2], digest, "examined.judged.prompt")
        if difference is not None:
            return difference, ""
    before: tuple[Message, ...] = ()
    for number, call in enumerate(run.calls):
        place = f"examined.judged.calls[{number}]"
        id_, user = words.material(
            dossier,
            claims,
            _claims(call, len(claims), place),
            _shown(call, dossier, place),
            len(dossier.numbered_passages),
        )
        if call.id != id_:
            return Difference(f"{place}.id", call.id, id_), ""
        read = read_reply(call.reply, id_) is not None
        if call.error in ("", UNREADABLE) and read is bool(call.error):
            return Difference(f"{place}.error", call.error, UNREADABLE if not read else ""), ""
        if system is None:
            continue
        sent = words.messages(JudgePrompt(system), user)
        before_it = run.calls[number - 1] if number else None
        if before_it and before_it.id == id_ and before_it.second == call.second:
            # After a reply that could not be parsed, the same question is sent once more.
            again = before_it.reply or "-"
            sent = (
                *before,
                Message(role="assistant", content=again),
                Message(role="user", content=words.AGAIN),
            )
        before = sent
        difference = first(call.prompt_hash, words.prompt_hash(sent), f"{place}.prompt_hash")
        if difference is not None:
            return difference, ""
    if system is None:
        raise NotRun(f"the text of the judge's prompt {run.prompt!r:.60} is not in this copy")
    shipped = JudgePrompt(language=run.language).text if run.language in words.LANGUAGES else ""
    return None, "" if system == shipped else f"the prompt {run.prompt!r:.60} is the operator's own"


def _claims(call: JudgeExchange, count: int, place: str) -> tuple[int, ...]:
    numbers = tuple(call.numbers(count))
    listed = (call.first, *call.claims, call.last)
    if (
        not numbers
        or not 1 <= min(listed) <= max(listed) <= count
        or [*numbers] != sorted({*numbers})
    ):
        raise ReceiptBroken(f"{_AT}: {place}", f"refers to claims outside 1 to {count}")
    return numbers


def _shown(call: JudgeExchange, dossier: Dossier, place: str) -> list[tuple[int, str]]:
    """Number and text of each passage, or piece of one, in a call."""
    parts: dict[int, list[tuple[int, int]]] = {}
    for number, start, end in call.pieces:
        parts.setdefault(number, []).append((start, end))
    if not {*parts} <= {*call.passages} or len({*call.passages}) < len(call.passages):
        raise ReceiptBroken(f"{_AT}: {place}", "its pieces are not of its passages")
    passages = []
    for number in call.passages:
        if not 1 <= number <= len(dossier.passages):
            raise ReceiptBroken(f"{_AT}: {place}", f"passage {number} does not exist")
        text = dossier.passages[number - 1][1]
        passages += [
            (number, text[start:end]) for start, end in parts.get(number, [(0, len(text))])
        ]
    return passages
