"""What compaction keeps at half the tokens, beside plain trimming.

`python -m crp_integrations.bench.compaction DATA` reads, as far as they are there,
`rot/*.jsonl.gz` (`query, answers, passage`: is an answer still in half of its passage) and the sets
of `retrieval/*/` (`bench/selection/data.py`: characters of evidence kept when a context of passages
is brought to half). The same texts are compacted as a pack and as an agent's history whose tools
answered them. Beside them: the first half, LangChain's `trim_messages`, clearing of old results as
`ClearToolUsesEdit` does, and TextRank-like centrality, none of which reads the question.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from crp_integrations.bench.selection.data import Collection, read
from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.render import marker_text
from crp_integrations.fabric.records import Moment
from crp_integrations.governance.compaction import AutoCompactor, CompactionSettings
from crp_integrations.governance.packs import (
    ContextItem,
    ContextPack,
    ContextSection,
    RetrievalEvidence,
)
from crp_integrations.language.overlap import coverage, inverse_frequency
from crp_integrations.language.sentences import split_sentences
from crp_integrations.messages import Message, ToolCall
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256

NOW: Final[Moment] = datetime(2026, 1, 1, tzinfo=UTC)

HALF: Final = 0.5
PASSAGES: Final = 20
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


Way = Callable[[Case, TokenCounter], str]


# --- ways to bring a context to half -------------------------------------------------------------


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


def as_pack(case: Case, counter: TokenCounter) -> str:
    """Ours, of a pack with the scores of the search."""
    pack, texts, tokens = pack_of(case, counter)
    compact = AutoCompactor(counter, SETTINGS).compact(
        pack, int(HALF * tokens), texts=texts, now=NOW
    )
    shown = {**texts, **compact.texts}
    return "\n\n".join(shown[item.shown_ref] for item in compact.compacted.items)


def history_of(case: Case) -> list[Message]:
    """The texts as results of tools, in an order that says nothing, before the question."""
    mixed = sorted(case.texts, key=sha256)
    messages = [Message(role="user", content="I shall ask you something. Read first.")]
    for number, text in enumerate(mixed):
        call = ToolCall(id=f"call_{number}", name="read")
        messages.append(Message(role="assistant", tool_calls=(call,)))
        messages.append(Message(role="tool", content=text, tool_call_id=call.id))
    return [*messages, Message(role="user", content=case.question)]


def as_history(case: Case, counter: TokenCounter) -> str:
    """Ours, of an agent's history without scores."""
    messages = history_of(case)
    budget = int(HALF * counter.count_messages(messages))
    compact = AutoCompactor(counter, SETTINGS).compact_history(messages, budget, now=NOW)
    return "\n\n".join(message.content for message in compact.messages)


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
    from crp_integrations.bench.peers.langchain_trim import trimmed as trim

    messages = history_of(case)
    return "\n\n".join(trim(messages, int(HALF * counter.count_messages(messages)), counter))


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


# --- what is measured ----------------------------------------------------------------------------


def answers(path: Path) -> Iterator[Case]:
    """Questions with one passage each and the answers that stand in it."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            text = row["passage"]
            found = [one for one in row["answers"] if one.lower() in text.lower()]
            if found and len(split_sentences(text)) > 1:
                yield Case(row["query"], (text,), (1.0,), tuple(found[:1]), all_at_once=True)


def contexts(collection: Collection, counter: TokenCounter) -> Iterator[Case]:
    """Each question with the passages that its words and its evidence bring in."""
    from crp_integrations.bench.selection.units import cut

    passages = [
        (text.doc_id, start, end, text.text[start:end].strip())
        for text in collection.texts
        for start, end in cut(text.text, counter)
    ]
    rarity = inverse_frequency([passage[3] for passage in passages])
    bodies = {text.doc_id: text.text for text in collection.texts}
    for question in collection.questions:
        scores = [coverage(question.query, passage[3], rarity) for passage in passages]
        order = sorted(range(len(passages)), key=lambda n: (-scores[n], n))
        gold = {
            n
            for n, (doc, start, end, _) in enumerate(passages)
            for one in question.evidence
            if one.doc_id == doc and one.start < end and start < one.end
        }
        # Evidence is always among them: what is measured is what compaction loses of it.
        taken = list(dict.fromkeys([*sorted(gold), *order]))[: max(PASSAGES, len(gold))]
        taken.sort(key=lambda n: (-scores[n], n))
        texts = tuple(dict.fromkeys(passages[n][3] for n in taken))
        by_text = {passages[n][3]: scores[n] for n in taken}
        needed = tuple(bodies[one.doc_id][one.start : one.end] for one in question.evidence)
        yield Case(question.query, texts, tuple(by_text[text] for text in texts), needed)


def kept(case: Case, shown: str) -> float:
    """Share of what is needed that is shown: of an answer all or nothing, else by characters."""
    have = " ".join(shown.lower().split())
    if case.all_at_once:
        return float(any(" ".join(one.lower().split()) in have for one in case.needed))
    total = found = 0
    for one in case.needed:
        for span in split_sentences(one):
            words = " ".join(span.of(one).lower().split())
            total += len(words)
            found += len(words) if words in have else 0
    return found / total if total else 1.0


WAYS: Final[dict[str, Way]] = {
    "ours, pack": as_pack,
    "ours, history": as_history,
    "LangChain trim_messages": trimmed,
    "old results cleared": cleared,
    "last kept, lead of the rest": summed,
    "lead of each": lead,
    "question's words": asked,
    "centrality": central,
}
# Compares every sentence with every other, so of one passage only.
_SLOW: Final = frozenset({"centrality"})
ALONE: Final = frozenset({"ours, pack", "lead of each", "question's words", "centrality"})


def measure(cases: Sequence[Case], counter: TokenCounter) -> dict[str, dict[str, float]]:
    """Share kept and milliseconds of CPU a case, by way."""
    results: dict[str, dict[str, float]] = {}
    single = bool(cases) and cases[0].all_at_once
    for name, way in WAYS.items():
        if name not in ALONE if single else name in _SLOW:
            continue
        try:
            before = time.process_time()
            shares = [kept(case, way(case, counter)) for case in cases]
        except ImportError:
            continue
        spent = 1000 * (time.process_time() - before) / max(1, len(cases))
        results[name] = {
            "kept": round(sum(shares) / max(1, len(shares)), 4),
            "ms": round(spent, 2),
        }
    return results


def run(data: Path, questions: int) -> dict[str, Any]:
    """The figures of every set that is there."""
    counter = counter_for("gpt-4o")
    found: dict[str, Any] = {}
    for path in sorted((data / "rot").glob("*.jsonl.gz")):
        cases = list(answers(path))
        step = max(1, len(cases) // questions)
        cases = cases[::step][:questions]
        found[path.name.split(".")[0]] = {"cases": len(cases), **measure(cases, counter)}
    for folder in sorted(one for one in (data / "retrieval").glob("*") if one.is_dir()):
        sets = read(folder, queries=questions)
        cases = [case for one in sets.collections for case in contexts(one, counter)]
        found[folder.name] = {"cases": len(cases), **measure(cases, counter)}
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print the share of answers and evidence that half of the tokens keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with rot/ and retrieval/")
    parser.add_argument("--questions", type=int, default=100, help="at most so many of each set")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args(arguments)
    try:
        found = run(given.data, given.questions)
    except OSError as error:
        sys.exit(f"crp: {error}")
    if not found:
        sys.exit(f"crp: {given.data} has neither rot/*.jsonl.gz nor retrieval/*/")
    if given.json:
        given.json.write_text(json.dumps({"results": found}, indent=2) + "\n", encoding="utf-8")
    show(found)


def show(found: dict[str, Any]) -> None:
    """Print a row for each way, a column for each set: share kept, milliseconds."""
    print(f"{'at half of the tokens':30}" + "".join(f"{name[:14]:>18}" for name in found))
    print(f"{'cases':30}" + "".join(f"{row['cases']:>18}" for row in found.values()))
    for way in WAYS:
        cells = (row.get(way) for row in found.values())
        print(
            f"{way:30}"
            + "".join(
                f"{one['kept']:>10.3f}{one['ms']:>6.0f}ms" if one else f"{'':>18}" for one in cells
            )
        )


if __name__ == "__main__":
    main()
