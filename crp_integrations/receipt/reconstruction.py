"""Rebuilds the values that a receipt was made from, as far as the copy contains their texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from crp_integrations.dpe.dossier import Dossier, PriorWindow, System
from crp_integrations.dpe.engine_signals import SignalEntry
from crp_integrations.dpe.pipeline import Engines, Examination
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.dpe.report_parts import JudgeExchange, JudgeRun, UnreadPassage
from crp_integrations.envelope.candidates import Candidate, Candidates, ScoredPassage, ScoredSpan
from crp_integrations.envelope.near_duplicates import ListedPairs
from crp_integrations.envelope.prompt import BETWEEN
from crp_integrations.errors import CRPError, ReceiptBroken
from crp_integrations.messages import Message
from crp_integrations.receipt.canonical import seen
from crp_integrations.receipt.leaves import LONGEST, composed, stretches
from crp_integrations.receipt.outline import NAMELESS
from crp_integrations.receipt.predicate import (
    OPTIONAL,
    CandidateRecord,
    Content,
    EnginesRecord,
    ExaminationRecord,
    JudgeCallRecord,
    JudgeRecord,
    Passage,
    Piece,
    SentMessage,
)
from crp_integrations.receipt.records import Receipt, require_receipt
from crp_integrations.records import Part
from crp_integrations.scores import SCALE, from_fixed
from crp_integrations.vocabulary import Domain, Sector


def run_of(judged: JudgeRecord, text: Callable[[int], str]) -> JudgeRun:
    """The recorded calls of a judge."""
    try:
        return JudgeRun(
            **_fields(
                judged,
                "conversation",
                "instructions",
                "system",
                calls=tuple(_exchange(call, text) for call in judged.calls),
                left_out=tuple(
                    UnreadPassage(fact_id=id_, reason=why) for id_, why in judged.left_out
                ),
            )
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in ("content.examined.judged", *first["loc"]))
        raise ReceiptBroken(place, str(first["msg"])) from None


def _exchange(call: JudgeCallRecord, text: Callable[[int], str]) -> JudgeExchange:
    return JudgeExchange(
        **_fields(
            call,
            "cost",
            "leaf",
            reply="" if call.leaf is None else text(call.leaf),
            cost_usd=None if call.cost is None else float(call.cost),
        )
    )


def _fields(content: Part, *but: str, **made: Any) -> dict[str, Any]:
    """Fields of a part, as arguments for the record that it was made from."""
    return {name: value for name, value in content if name not in but} | made


# Replaces a redacted question about current things, so that it is again recognised as one.
_TEMPORAL: Final = "current"
# First code point and number of the private-use characters in fillers.
_FILLER_START: Final = 0xF0000
_FILLER_COUNT: Final = 65_000

# Maximum characters of all fillers; a malicious file could claim any number of left-out characters.
_MAX_FILLER_CHARACTERS: Final = LONGEST
# Errors raised when a replay computes with values that have the right types but make no sense.
MALFORMED: Final = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError,
)  # fmt: skip


def malformed(place: str, error: Exception) -> ReceiptBroken:
    """The error for content that makes a computation fail."""
    return ReceiptBroken(place, f"cannot be computed with: {type(error).__name__}")


class MissingTextError(Exception):
    """A text is not in this copy.

    Attributes:
        leaf: name of the text's leaf.
    """

    def __init__(self, leaf: str, state: str) -> None:
        super().__init__(f"the text {leaf!r:.80} is {state} in this copy")
        self.leaf = leaf


class Texts:
    """The texts of a receipt, by number of leaf."""

    def __init__(self, receipt: Receipt) -> None:
        self._receipt = receipt
        self._plain = receipt.plain

    def get(self, number: int) -> str | None:
        """A text; None if it was left out."""
        if not 0 <= number < len(self._plain):
            raise ReceiptBroken("content", f"refers to leaf {number}, which does not exist")
        text = self._plain[number]
        return self._receipt.text(number) if text is None else text

    def __getitem__(self, number: int) -> str:
        text = self.get(number)
        if text is None:
            receipt = self._receipt
            raise MissingTextError(receipt.leaves[number].name, self.state(number))
        return text

    def state(self, number: int) -> str:
        """`shown`, `redacted` or `erased`; for a composed text that of its first missing part."""
        receipt = self._receipt
        state = receipt.state(number)
        if state != "shown":
            return state
        for part in receipt.leaves[number].parts:
            if not isinstance(part, str):
                other = receipt.state(part if isinstance(part, int) else part[0])
                if other != "shown":
                    return other
        return state

    def pieces(self, pieces: Sequence[Piece], most: int = LONGEST) -> str:
        """Join a text from pieces of others."""
        for piece in pieces:
            if not isinstance(piece, str):
                self[piece if isinstance(piece, int) else piece[0]]
        text = composed(pieces, self.get, most)
        if text is None:
            raise ReceiptBroken(
                "content", "a stretch is longer than its leaf, or a text is too long"
            )
        return text

    def named(self, name: str) -> str:
        """The text of the leaf with this name."""
        if name not in self._receipt.numbers:
            raise ReceiptBroken("leaves", f"no leaf is named {name!r:.60}")
        return self[self._receipt.number(name)]


def content_of(receipt: Receipt) -> Content:
    """The content of a receipt, validated against its schema."""
    require_receipt(receipt)
    missing = sorted(_names() - receipt.content.keys())
    if missing:
        raise ReceiptBroken(f"content.{missing[0]}", "is missing")
    try:
        return Content.model_validate(receipt.content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in ("content", *first["loc"]))
        reason = f"is {seen(first['input'])}: {first['msg']}"
        reason = "is missing" if first["type"] == "missing" else reason
        raise ReceiptBroken(place, reason) from None


@cache
def _names() -> frozenset[str]:
    """The keys that the content of every receipt has."""
    names = {field.alias or name for name, field in Content.model_fields.items()}
    return frozenset(names - OPTIONAL)


def candidates_of(content: Content, texts: Texts) -> tuple[Candidates, tuple[str, ...]]:
    """The ranked candidates, and the ids of those whose text was left out.

    A filler of the same length replaces each left-out text, so that all positions stay valid.
    """
    selected, fit, tokenizer = content.selected, content.fit, content.model.tokenizer
    if selected is None or fit is None or tokenizer is None:
        raise ReceiptBroken("content.selected", "is missing")
    hidden: list[str] = []
    facts = []
    # Cached: facts of one ingestion share their time, and those of a community its label.
    times: dict[str | None, datetime | None] = {None: None}
    labels: dict[int | None, str | None] = {None: None}
    left = _MAX_FILLER_CHARACTERS
    for place, candidate in enumerate(content.candidates):
        text = texts.get(candidate.leaf)
        if text is None:
            left -= candidate.characters
            if left < 0:
                raise ReceiptBroken(
                    f"content.candidates[{candidate.id:.80}].characters",
                    f"more than {_MAX_FILLER_CHARACTERS} are left out",
                )
            hidden.append(candidate.id)
            text = _filler(place, candidate.characters)
        facts.append(_candidate(candidate, text, times, labels))
    question = texts.get(content.request.question)
    if question is None:
        question = _TEMPORAL if fit.temporal else ""
    needs = tuple(texts.get(number) or "" for number in content.request.needs)
    count = sum(max(1, len(fact.passages)) for fact in facts)
    for name, pairs in (("duplicates", selected.duplicates), ("conflicts", selected.conflicts)):
        if any(not left < right < count for left, right in pairs):
            raise ReceiptBroken(f"content.selected.{name}", "a pair is not of two candidates")
    return Candidates(
        **_fields(
            selected,
            "all_pairs",
            query=question,
            sub_queries=needs or (question,),
            facts=tuple(facts),
            tokenizer=tokenizer.identity,
            duplicates=ListedPairs(selected.duplicates),
            conflicts=ListedPairs(selected.conflicts),
        )
    ), tuple(hidden)


def moment(text: str, place: str) -> datetime:
    """Read an ISO 8601 time with a time zone."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ReceiptBroken(place, "not an ISO 8601 time") from None
    if parsed.tzinfo is None:
        raise ReceiptBroken(place, "has no time zone")
    return parsed


def _candidate(
    candidate: CandidateRecord,
    text: str,
    times: dict[str | None, datetime | None],
    labels: dict[int | None, str | None],
) -> Candidate:
    flat, when, number = candidate.stretches, candidate.ingested_at, candidate.community
    place = f"content.candidates[{candidate.id}]"
    if flat and (len(flat) % 3 or max(flat[1::3]) > candidate.characters):
        raise ReceiptBroken(
            f"content.candidates[{candidate.id}].stretches", "not stretches of its leaf"
        )
    if len(text) != candidate.characters:
        raise ReceiptBroken(
            f"content.candidates[{candidate.id}].characters", f"the leaf has {len(text)}"
        )
    if when is not None and when not in times:
        times[when] = moment(when, f"{place}.ingested_at")
    if number not in labels:
        labels[number] = None if number is None else label_of(number)
    # Positional arguments are faster, and a receipt has hundreds of candidates.
    return Candidate(
        candidate.id,
        text,
        candidate.source,
        candidate.relevance,
        candidate.importance,
        candidate.tokens,
        times[when],
        candidate.stale,
        labels[number],
        "",
        (),
        candidate.score,
        candidate.lexical,
        candidate.hop,
        tuple(map(ScoredSpan, flat[0::3], flat[1::3], flat[2::3])),
        candidate.spans,
        "",
        candidate.decay,
        candidate.decision,
        candidate.refused,
        _scored_passages(candidate),
    )


def _scored_passages(candidate: CandidateRecord) -> tuple[ScoredPassage, ...]:
    """The passages of a candidate; checks that they are in order and do not overlap."""
    size = len(ScoredPassage._fields)
    flat = iter(candidate.passages)
    passages = tuple(map(ScoredPassage, *[flat] * size)) if candidate.passages else ()
    ends = [0, *(end for passage in passages for end in passage[:2])]
    if len(candidate.passages) % size or ends != sorted(ends) or ends[-1] > candidate.characters:
        raise ReceiptBroken(
            f"content.candidates[{candidate.id}].passages", "not passages of its leaf"
        )
    return passages


def label_of(community: int) -> str:
    """The label that replaces a community's own label in a replay."""
    return "" if community == NAMELESS else f"community {community}"


def _filler(place: int, characters: int) -> str:
    """A text of private-use characters that starts with a different one for each fact."""
    start = place * 7_919 % _FILLER_COUNT
    ring = _ring()
    return ((ring[start:] + ring[:start]) * (characters // _FILLER_COUNT + 1))[:characters]


@cache
def _ring() -> str:
    return "".join(chr(_FILLER_START + at) for at in range(_FILLER_COUNT))


def message_of(sent: SentMessage, texts: Texts) -> Message:
    """A message as it was sent."""
    try:
        frame = {} if sent.frame is None else json.loads(texts[sent.frame])
        return Message(role=sent.role, content=texts[sent.leaf], **frame)
    except (ValueError, TypeError):
        raise ReceiptBroken("content.calls", "a message is malformed") from None


def examination_of(content: Content, examined: ExaminationRecord, texts: Texts) -> Examination:
    """The recorded examination with its texts."""
    shown = passages_of(content, examined)
    importances = [passage.importance for passage in shown]
    known = [from_fixed(value) for value in importances if value is not None]
    judged = examined.judged or JudgeRecord()
    try:
        dossier = Dossier(
            question="" if examined.question is None else texts[examined.question],
            answer=texts[examined.answer],
            passages=_passage_texts(shown, texts),
            grounding=examined.grounding,
            importances=tuple(known) if len(known) == len(importances) else (),
            sub_queries=tuple(texts[number] for number in examined.needs),
            prior=tuple(
                PriorWindow(**_fields(window, "leaf", text=texts[window.leaf]))
                for window in examined.prior
            ),
            rejected=tuple(
                RejectedClaim(
                    text=texts[claim.leaf],
                    said="" if claim.said is None else texts[claim.said],
                    wrong="" if claim.wrong is None else texts[claim.wrong],
                    reason="" if claim.reason is None else texts[claim.reason],
                    window_id=claim.window_id,
                )
                for claim in examined.rejected
            ),
            windows_left=examined.windows_left,
            prompt=_prompt(content, examined, texts),
            system=System(
                **_fields(
                    examined.system,
                    domain=Domain(examined.system.domain) if examined.system.domain else None,
                    sector=Sector(examined.system.sector) if examined.system.sector else None,
                )
            ),
            loop_depth=examined.loop_depth,
            no_store=examined.no_store,
            conversation=_conversation(content, examined, texts),
            instructions="" if judged.instructions is None else texts[judged.instructions],
        )
    except (ValueError, CRPError) as error:
        if isinstance(error, ReceiptBroken):
            raise
        raise ReceiptBroken("content.examined", f"malformed: {error}") from None
    entries = tuple(SignalEntry(signal.at, signal.value) for signal in examined.signals)
    run = None if examined.judged is None else run_of(examined.judged, texts.__getitem__)
    return Examination(dossier, entries, engines_of(examined.engines), run)


def _passage_texts(shown: Sequence[Passage], texts: Texts) -> tuple[tuple[str, str], ...]:
    """Id and text of each passage; refuses more than `LONGEST` characters in total."""
    passages = []
    left = LONGEST
    for passage in shown:
        text = texts.pieces(passage.pieces, left)
        left -= len(text)
        passages.append((passage.id, text))
    return tuple(passages)


def passages_of(content: Content, examined: ExaminationRecord) -> tuple[Passage, ...]:
    """The passages that the answer was compared with: recorded ones, or the envelope's facts."""
    if examined.passages is not None:
        return examined.passages
    passages = []
    for fact in content.envelope.facts if content.envelope else ():
        if fact.at >= len(content.candidates):
            raise ReceiptBroken("content.envelope.facts", f"candidate {fact.at} does not exist")
        candidate = content.candidates[fact.at]
        pieces: list[Piece] = [candidate.leaf]
        if fact.spans and fact.spans != candidate.spans:
            pieces = stretches(candidate.leaf, fact.spans)
        passages.append(
            Passage(id=candidate.id, pieces=tuple(pieces), importance=candidate.importance)
        )
    return tuple(passages)


def engines_of(engines: EnginesRecord) -> Engines:
    """The recorded engines, thresholds as floats."""
    return Engines(
        **_fields(
            engines,
            embedder_thresholds={k: float(v) for k, v in engines.embedder_thresholds.items()},
            verifier_thresholds={k: float(v) for k, v in engines.verifier_thresholds.items()},
        )
    )


def _prompt(content: Content, examined: ExaminationRecord, texts: Texts) -> str:
    if examined.prompt is None:
        return ""
    if isinstance(examined.prompt, int):
        return texts[examined.prompt]
    request = content.request
    parts = [
        "" if request.system_prompt is None else texts[request.system_prompt],
        *(texts[message.leaf] for message in request.history),
        texts[request.question],
    ]
    return BETWEEN.join(part for part in parts if part)


def _conversation(
    content: Content, examined: ExaminationRecord, texts: Texts
) -> tuple[tuple[str, str], ...]:
    """The messages before the question: those that the judge saw, else the request's."""
    judged = examined.judged or JudgeRecord()
    messages = judged.conversation or content.request.history
    spoken = (
        (str(message.role), texts[message.leaf])
        for message in messages
        if message.role in ("user", "assistant")
    )
    return tuple((role, text) for role, text in spoken if text.strip())


def sealed(texts: Texts) -> dict[str, Any]:
    """The hashes in the window's seal."""
    try:
        hashes = json.loads(texts.named("seal"))
    except ValueError:
        raise ReceiptBroken("seal", "not valid JSON") from None
    if not isinstance(hashes, dict):
        raise ReceiptBroken("seal", f"is {seen(hashes)}, wanted a JSON object")
    return hashes


def budget_of(value: int) -> float:
    """Convert millionths to a share."""
    return value / SCALE
