"""Ways to bring a context to half of its tokens: ours, those of LangChain, and simple ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from crp_integrations.envelope.prompt import marker_text
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.compaction.compactor import AutoCompactor
from crp_integrations.governance.compaction.history import make_ids
from crp_integrations.governance.compaction.records import CompactionAccount
from crp_integrations.governance.compaction.text_pieces import read_part
from crp_integrations.governance.context_pack import (
    ContextItem,
    ContextPack,
    ContextSection,
    RetrievalEvidence,
)
from crp_integrations.governance.settings import CompactionSettings
from crp_integrations.language.lexical_overlap import coverage, inverse_frequency
from crp_integrations.language.text import split_sentences
from crp_integrations.messages import Message, ToolCall
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256

NOW: Final[Moment] = datetime(2026, 1, 1, tzinfo=UTC)

HALF: Final = 0.5
# Everything is shown or not by the question alone: what an agent said lately has no part in it.
SETTINGS: Final = CompactionSettings(
    trigger_share=1.0, target_share=1.0, keep_recent=0, blob_share=1.0, prune_to=0.0
)
PLACEHOLDER: Final = "[cleared]"


@dataclass(frozen=True, slots=True)
class Case:
    """A question, the texts that were found for it, best first, and what of them it needs."""

    question: str
    texts: tuple[str, ...]
    scores: tuple[float, ...]
    needed: tuple[str, ...]
    all_at_once: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What a way leaves.

    Attributes:
        gone: what it reports as not shown, by text: characters, half-open.
    """

    text: str
    gone: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)


Way = Callable[[Case, TokenCounter], str | Left]


def pack_of(case: Case, counter: TokenCounter) -> tuple[ContextPack, dict[str, str], int]:
    """The texts as a pack, with its tokens."""
    texts = {sha256(text): text for text in case.texts}
    items = tuple(
        ContextItem(
            id=f"p{number}",
            source_type="knowledge",
            content_ref=sha256(text),
            score=score,
            security_label="tenant:bench",
            evidence=RetrievalEvidence(retriever="keyword", query=case.question, score=score),
        )
        for number, (text, score) in enumerate(zip(case.texts, case.scores, strict=True))
    )
    tokens = sum(counter.count_many([marker_text(text) for text in case.texts]))
    section = ContextSection(
        type="knowledge", token_budget=tokens, token_actual=tokens, items=items, selection_reason=""
    )
    pack = ContextPack(
        id="bench",
        session_id="",
        created_at=NOW,
        token_budget=tokens,
        token_actual=tokens,
        sections=(section,),
    )
    return pack, texts, tokens


def _gone(account: CompactionAccount, texts: Mapping[str, str]) -> dict[str, list[tuple[int, int]]]:
    """What an account reports of texts, which are given by their ids."""
    found: dict[str, list[tuple[int, int]]] = {}
    for report in account.reports:
        for name in report.dropped_item_ids:
            item, span = read_part(name, frozenset(texts))
            found.setdefault(texts[item], []).append(span or (0, len(texts[item])))
    return found


def as_pack(case: Case, counter: TokenCounter) -> Left:
    """Ours, of a pack with the scores of the search."""
    pack, texts, tokens = pack_of(case, counter)
    compact = AutoCompactor(counter, SETTINGS).compact(
        pack, int(HALF * tokens), texts=texts, now=NOW
    )
    shown = {**texts, **compact.texts}
    whole = {item.id: texts[item.content_ref] for item in pack.items}
    text = "\n\n".join(shown[item.shown_ref] for item in compact.compacted.items)
    return Left(text, _gone(compact.account, whole))


def history_of(case: Case) -> list[Message]:
    """The texts as results of tools, in an order that says nothing, before the question."""
    mixed = sorted(case.texts, key=sha256)
    messages = [Message(role="user", content="I shall ask you something. Read first.")]
    for number, text in enumerate(mixed):
        call = ToolCall(id=f"call_{number}", name="read")
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", content=text, tool_call_id=call.id))
    return [*messages, Message(role="user", content=case.question)]


def as_history(case: Case, counter: TokenCounter) -> Left:
    """Ours, of an agent's history without scores."""
    messages = history_of(case)
    budget = int(HALF * counter.count_messages(messages))
    compact = AutoCompactor(counter, SETTINGS).compact_history(messages, budget, now=NOW)
    whole = dict(zip(make_ids(messages), (one.content for one in messages), strict=True))
    text = "\n\n".join(message.content for message in compact.messages)
    return Left(text, _gone(compact.account, whole))


def cleared(case: Case, counter: TokenCounter) -> str:
    """The oldest results give way to a sign, as LangChain's `ClearToolUsesEdit` does it."""
    messages = history_of(case)
    budget = int(HALF * counter.count_messages(messages))
    left = list(messages)
    for place, message in enumerate(messages):
        if counter.count_messages(left) <= budget:
            break
        if message.role == "tool":
            left[place] = message.model_copy(update={"content": PLACEHOLDER})
    return "\n\n".join(message.content for message in left)


def summed(case: Case, counter: TokenCounter) -> str:
    """The last messages whole, the first sentences of the older ones: a summary without a model."""
    messages = history_of(case)
    budget = int(HALF * counter.count_messages(messages))
    kept, used = len(messages), 0
    for place in range(len(messages) - 1, -1, -1):
        used += counter.count_messages([messages[place]])
        if used > budget * 0.8:
            break
        kept = place
    older = [m.content for m in messages[:kept] if m.content]
    room = budget - counter.count_messages(messages[kept:])
    first = _lead(older, room, counter)
    return "\n\n".join([first, *(m.content for m in messages[kept:])])


def trimmed(case: Case, counter: TokenCounter) -> str:
    """LangChain's `trim_messages`."""
    from tests.bench.peers.langchain_trim import trimmed as trim

    messages = history_of(case)
    return "\n\n".join(trim(messages, int(HALF * counter.count_messages(messages)), counter))


def summarised(case: Case, counter: TokenCounter) -> str:
    """LangChain's `SummarizationMiddleware`, whose model quotes first sentences."""
    from tests.bench.peers.langchain_summarising import summarised as sum_up

    messages = history_of(case)
    budget = int(HALF * counter.count_messages(messages))
    left = sum_up(messages, budget, counter, lambda texts, room: _lead(texts, room, counter))
    return "\n\n".join(left)


def lead(case: Case, counter: TokenCounter) -> str:
    """The first half of the texts, each by its first sentences."""
    tokens = sum(counter.count_many(list(case.texts)))
    return _lead(case.texts, int(HALF * tokens), counter)


def central(case: Case, counter: TokenCounter) -> str:
    """The sentences that share most words with the others, as TextRank's first step has it."""
    return _by_score(
        case,
        counter,
        lambda sentence, every, rarity: sum(coverage(sentence, other, rarity) for other in every),
    )


def asked(case: Case, counter: TokenCounter) -> str:
    """The sentences that share most words with the question, in the order of the text."""
    return _by_score(
        case, counter, lambda sentence, _, rarity: coverage(case.question, sentence, rarity)
    )


def _lead(texts: Sequence[str], room: int, counter: TokenCounter) -> str:
    """The first sentence of each, then the second of each, as long as they fit."""
    split = [[span.of(text) for span in split_sentences(text)] for text in texts]
    chosen: dict[int, list[str]] = {}
    for depth in range(max(map(len, split), default=0)):
        for number, sentences in enumerate(split):
            if depth < len(sentences):
                room -= counter.count(sentences[depth] + " ")
                if room < 0:
                    return "\n\n".join(" ".join(chosen[n]) for n in sorted(chosen))
                chosen.setdefault(number, []).append(sentences[depth])
    return "\n\n".join(" ".join(chosen[n]) for n in sorted(chosen))


def _by_score(
    case: Case,
    counter: TokenCounter,
    score: Callable[[str, Sequence[str], dict[str, float]], float],
) -> str:
    every = [span.of(text) for text in case.texts for span in split_sentences(text)]
    room = int(HALF * sum(counter.count_many(every)))
    rarity = inverse_frequency(every)
    scores = [score(sentence, every, rarity) for sentence in every]
    kept: set[int] = set()
    for place in sorted(range(len(every)), key=lambda n: (-scores[n], n)):
        tokens = counter.count(every[place] + " ")
        if tokens <= room:
            kept.add(place)
            room -= tokens
    return " ".join(every[place] for place in sorted(kept))


WAYS: Final[dict[str, Way]] = {
    "ours, pack": as_pack,
    "ours, history": as_history,
    "LangChain trim_messages": trimmed,
    "LangChain Summarization": summarised,
    "old results cleared": cleared,
    "last kept, lead of the rest": summed,
    "lead of each": lead,
    "question's words": asked,
    "centrality": central,
}
# Compares every sentence with every other, so of one passage only.
SLOW: Final = frozenset({"centrality"})
ALONE: Final = frozenset({"ours, pack", "lead of each", "question's words", "centrality"})
