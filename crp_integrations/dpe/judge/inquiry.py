"""The model calls that judge one answer, and their replies; one call if everything fits.

The caller makes the model call that `call()` returns and passes its reply to `take()`, in a loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.judge import messages as words
from crp_integrations.dpe.judge.messages import JudgePrompt
from crp_integrations.dpe.judge.reply import read_reply, readable
from crp_integrations.dpe.records import Claim
from crp_integrations.dpe.report_parts import (
    QUESTION_ID,
    SYSTEM_ID,
    JudgeExchange,
    JudgeRun,
    UnreadPassage,
)
from crp_integrations.messages import Message, ModelCall, Usage
from crp_integrations.vocabulary import Purpose

# Estimated tokens of a reply: for the object, and for each claim.
REPLY_TOKENS: Final = 200
CLAIM_TOKENS: Final = 120
# Tokens of the frame around a text in the JSON object.
FRAME_TOKENS: Final = 8
# Minimum tokens for passages in a call, even if that exceeds the window: the provider then refuses.
MIN_PASSAGE_TOKENS: Final = 400
# Maximum number of claims in one call: with more, models do not finish their replies.
MOST_CLAIMS: Final = 80

TOO_LONG, FAILED = "length", "failed"


@dataclass(frozen=True, slots=True)
class JudgeTerms:
    """The model, prompt and limits of the calls to a judge.

    Attributes:
        window: input and output tokens of one call.
        count: returns an upper bound of the tokens of a text.
        most_calls: maximum number of calls for one answer; passages beyond are reported.
        left_out: fact id of each passage that the provider must not get, and the reason.
    """

    model: str
    prompt: JudgePrompt = field(default_factory=JudgePrompt)
    window: int = 32_000
    count: Callable[[str], int] = lambda text: estimated(text)
    most_calls: int = 8
    max_tokens: int | None = None
    temperature: float | None = 0.0
    own_answer: bool = False
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The result of a call: the model's text, or the name of an error."""

    text: str = ""
    model: str = ""
    error: str = ""
    usage: Usage = field(default_factory=Usage)
    milliseconds: int = 0
    cached: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """The content of one call: the numbers of its claims, and numbered pieces of passages."""

    claims: tuple[int, ...]
    passages: tuple[tuple[int, str], ...]


def estimated(text: str) -> int:
    """An upper bound of tokens: one for three ASCII characters, two for each other character."""
    other = len(text) - len(text.encode("ascii", "ignore"))
    return (len(text) - other + 2) // 3 + 2 * other


class Inquiry:
    """The judging of one answer, call by call. Not thread-safe.

    Args:
        doubtful: numbers of the claims that a second judge is asked about; None for all claims.
    """

    def __init__(
        self,
        dossier: Dossier,
        claims: Sequence[Claim],
        asking: JudgeTerms,
        doubtful: Sequence[int] | None = None,
    ) -> None:
        self._dossier = dossier
        self._numbers = tuple(range(1, len(claims) + 1) if doubtful is None else doubtful)
        self._second = doubtful is not None
        self._claims = tuple(claims)
        self._asking = asking
        kept_back = dict(asking.left_out)
        self._passages = [
            (number, text)
            for number, (fact_id, text) in enumerate(dossier.numbered_passages, 1)
            if fact_id not in kept_back
        ]
        parts, unread = self._parts()
        self._waiting = deque(parts)
        self._left_out = [
            UnreadPassage(fact_id=fact_id, reason=kept_back[fact_id])
            for fact_id, _ in dossier.passages
            if fact_id in kept_back
        ]
        self._left_out += [
            UnreadPassage(fact_id=dossier.passages[number - 1][0], reason=TOO_LONG)
            for number in unread
        ]
        self._left_out += [
            UnreadPassage(fact_id=name, reason=TOO_LONG)
            for name, text, most in (
                (QUESTION_ID, dossier.question, words.QUESTION_CHARACTERS),
                (SYSTEM_ID, dossier.instructions, words.SYSTEM_CHARACTERS),
            )
            if len(text) > most
        ]
        self._made: list[JudgeExchange] = []
        self._asked: tuple[_Part, str, tuple[Message, ...], bool] | None = None
        self._failed = ""
        self._unanswered: list[_Part] = []

    @property
    def failed(self) -> str:
        """Name of the error that ended the inquiry; empty for none."""
        return self._failed

    def call(self) -> ModelCall | None:
        """The next call; None if nothing is left to ask."""
        if self._failed or (self._asked is None and not self._waiting):
            return None
        if self._asked is None:
            part = self._waiting.popleft()
            id_, user = words.material(
                self._dossier,
                self._claims,
                part.claims,
                part.passages,
                len(self._dossier.numbered_passages),
            )
            self._asked = (part, id_, words.messages(self._asking.prompt, user), False)
        return ModelCall(
            model=self._asking.model,
            messages=self._asked[2],
            purpose=Purpose.JUDGE,
            temperature=self._asking.temperature,
            max_tokens=self._asking.max_tokens,
            response_format=words.RESPONSE_FORMAT,
        )

    def take(self, reply: JudgeReply) -> None:
        """Record the reply to the last call; an unreadable one is requested once more."""
        assert self._asked is not None
        part, id_, sent, again = self._asked
        text = readable(reply.text)
        verdicts = None if reply.error else read_reply(text, id_)
        self._asked = None
        self._made.append(
            JudgeExchange(
                id=id_,
                first=(first := part.claims[0]),
                last=(last := part.claims[-1]),
                claims=part.claims if last - first >= len(part.claims) else (),
                second=self._second,
                passages=tuple(dict.fromkeys(number for number, _ in part.passages)),
                pieces=self._shown_in_part(part),
                prompt_hash=words.prompt_hash(sent),
                model=reply.model,
                reply=text,
                error=reply.error or ("" if verdicts else "Unreadable"),
                cached=reply.cached,
                milliseconds=reply.milliseconds,
                prompt_tokens=reply.usage.prompt_tokens,
                completion_tokens=reply.usage.completion_tokens,
                cost_usd=reply.usage.cost_usd,
            )
        )
        if verdicts is not None:
            return
        if reply.error or again:
            self._failed = reply.error or "Unreadable"
            self._unanswered = [part, *self._waiting]
            return
        more = (
            *sent,
            Message(role="assistant", content=text or "-"),
            Message(role="user", content=words.AGAIN),
        )
        self._asked = (part, id_, more, True)

    def _shown_in_part(self, part: _Part) -> tuple[tuple[int, int, int], ...]:
        """Number, start and end of each passage that a call shows only in part."""
        pieces = []
        for number, text in part.passages:
            whole = self._dossier.passages[number - 1][1]
            if text != whole:
                # If the piece occurs twice, the first place will do: the prompt is the same.
                start = whole.index(text)
                pieces.append((number, start, start + len(text)))
        return tuple(pieces)

    def run(self) -> JudgeRun:
        """The record of all calls and replies for the report."""
        left_out = {passage.fact_id: passage for passage in self._left_out}
        if len({call.id for call in self._made}) > 1:
            # One of several calls failed: list the passages of that call and of the later ones.
            for number in sorted({n for part in self._unanswered for n, _ in part.passages}):
                fact_id = self._dossier.passages[number - 1][0]
                left_out.setdefault(fact_id, UnreadPassage(fact_id=fact_id, reason=FAILED))
        return JudgeRun(
            model=self._asking.model,
            prompt=self._asking.prompt.identity,
            own_answer=self._asking.own_answer,
            calls=tuple(self._made),
            passages=len(self._dossier.numbered_passages),
            left_out=tuple(left_out.values()),
            language=self._asking.prompt.language,
        )

    # --- distribution of claims and passages over calls --------------------------------

    def _parts(self) -> tuple[list[_Part], list[int]]:
        """The calls, and the numbers of the passages that are not fully shown for every claim."""
        if not self._numbers:
            return [], []
        count = self._asking.count
        whole = _Part(self._numbers, tuple(self._passages))
        if len(self._numbers) <= MOST_CLAIMS and self._tokens(whole) <= self._asking.window:
            return [whole], []
        groups = self._groups()
        budgets = [self._asking.window - self._tokens(_Part(group, ())) for group in groups]
        parts: list[_Part] = []
        shown: list[set[int]] = []
        for group, budget in zip(groups, budgets, strict=True):
            asked = [self._claims[number - 1] for number in group]
            pieces = self._pieces(asked, max(MIN_PASSAGE_TOKENS, budget))
            most = max(1, self._asking.most_calls // len(groups))
            loads: list[list[tuple[int, str]]] = []
            free = 0
            for number, text in pieces:
                size = count(text) + FRAME_TOKENS
                if not loads or size > free:
                    if len(loads) == most:
                        continue
                    loads.append([])
                    free = max(MIN_PASSAGE_TOKENS, budget)
                loads[-1].append((number, text))
                free -= size
            # Sort by passage; pieces of one passage stay in text order.
            parts += [
                _Part(group, tuple(sorted(load, key=lambda piece: piece[0])))
                for load in loads or [[]]
            ]
            there = {piece for load in loads for piece in load}
            shown.append(
                {n for n, _ in pieces} - {n for n, text in pieces if (n, text) not in there}
            )
        read = set.intersection(*shown) if shown else set()
        parts = parts[: self._asking.most_calls]
        return parts, [number for number, _ in self._passages if number not in read]

    def _groups(self) -> list[tuple[int, ...]]:
        """The numbers of each group of claims that share a call."""
        budget = max(MIN_PASSAGE_TOKENS, self._asking.window // 2)
        groups: list[tuple[int, ...]] = []
        size = 0
        for number in self._numbers:
            text = self._claims[number - 1].text
            own = self._asking.count(text) + FRAME_TOKENS + self._reply(1)
            if not groups or size + own > budget or len(groups[-1]) >= MOST_CLAIMS:
                groups.append(())
                size = 0
            groups[-1] += (number,)
            size += own
        return groups

    def _pieces(self, claims: Sequence[Claim], budget: int) -> list[tuple[int, str]]:
        """The passages, most relevant to the claims first; one too long for a call in pieces."""
        from crp_integrations.language.lexical_overlap import coverage

        stated = " ".join(claim.text for claim in claims)
        ranked = sorted(
            self._passages,
            key=lambda passage: (-round(coverage(stated, passage[1]), 6), passage[0]),
        )
        pieces: list[tuple[int, str]] = []
        for number, text in ranked:
            tokens = self._asking.count(text) + FRAME_TOKENS
            if tokens <= budget:
                pieces.append((number, text))
                continue
            step = max(1, len(text) * budget // (tokens + tokens // 8 + 1))
            pieces += [(number, piece) for piece in _cut(text, step)]
        return pieces

    def _tokens(self, part: _Part) -> int:
        """Tokens of a call and its reply."""
        _, user = words.material(
            self._dossier, self._claims, part.claims, part.passages, len(part.passages)
        )
        asked = self._asking.count(self._asking.prompt.text) + self._asking.count(user)
        return asked + (self._asking.max_tokens or self._reply(len(part.claims)))

    def _reply(self, claims: int) -> int:
        return REPLY_TOKENS * (claims > 1) + CLAIM_TOKENS * claims


def _cut(text: str, step: int) -> list[str]:
    """Cut a text at lines, sentences or blanks into pieces of at most `step` characters."""
    pieces: list[str] = []
    at = 0
    while len(text) - at > step:
        least = at + max(1, step - step // 4)
        ends = (text.rfind(mark, least, at + step) + len(mark) for mark in ("\n", ". ", " "))
        end = next((end for end in ends if end > least), at + step)
        pieces.append(text[at:end])
        at = end
    return [*pieces, text[at:]]


def not_asked(model: str, why: str, language: str = "en") -> JudgeRun:
    """The record of a judge that was configured, but not asked."""
    return JudgeRun(model=model, skipped=why, language=language)
