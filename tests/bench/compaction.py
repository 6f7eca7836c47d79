"""What compaction keeps at half the tokens, beside plain trimming; `python -m tests.bench.compaction`.

It reads, as far as they are there,
`rot/*.jsonl.gz` (`query, answers, passage`: is an answer still in half of its passage) and the sets
of `retrieval/*/` (`evaluation/data_sets.py`: characters of evidence kept when a context of passages
is brought to half). The same texts are compacted as a pack and as an agent's history whose tools
answered them. Beside them: the first half, LangChain's `trim_messages`, clearing of old results as
`ClearToolUsesEdit` does, `SummarizationMiddleware` with a model that quotes first sentences, and
TextRank-like centrality, none of which reads the question. Of each way: the share that is kept, the
share of the tokens that is left, and of what is not shown any more the share that a report names.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from crp_integrations.engines.tokens import counter_for
from crp_integrations.errors import RequestError
from crp_integrations.evaluation.context_rot import FORM, question_in
from crp_integrations.evaluation.data_sets import Collection, each, read
from crp_integrations.language.lexical_overlap import coverage, inverse_frequency
from crp_integrations.language.text import split_sentences
from crp_integrations.ports import TokenCounter
from tests.bench.compaction_ways import ALONE, SLOW, WAYS, Case, Left

PASSAGES: Final = 20


def answers(path: Path) -> Iterator[Case]:
    """Questions with one passage each and the answers that stand in it.

    Raises:
        RequestError: the file cannot be read, or a row is of another form.
    """
    for one in each(path, FORM, question_in):
        text = one.passage
        found = [answer for answer in one.answers if answer.lower() in text.lower()]
        if found and len(split_sentences(text)) > 1:
            yield Case(one.query, (text,), (1.0,), tuple(found[:1]), all_at_once=True)


def contexts(collection: Collection, counter: TokenCounter) -> Iterator[Case]:
    """Each question with the passages that its words and its evidence bring in."""
    from tests.bench.selection_peers import cut

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


def reported(case: Case, left: Left) -> tuple[int, int]:
    """Characters of the sentences that are not shown, and how many of them a report names."""
    have = " ".join(left.text.split())
    gone = named = 0
    for text in case.texts:
        told = bytearray(len(text))
        for start, end in left.gone.get(text, ()):
            told[start:end] = b"x" * (end - start)
        for span in split_sentences(text):
            if " ".join(span.of(text).split()) in have:
                continue
            places = [n for n in range(span.start, span.end) if text[n].isalnum()]
            gone += len(places)
            named += sum(1 for n in places if told[n])
    return gone, named


def measure(cases: Sequence[Case], counter: TokenCounter) -> dict[str, dict[str, float]]:
    """By way: share kept, share of tokens left, share reported, milliseconds of CPU a case."""
    results: dict[str, dict[str, float]] = {}
    single = bool(cases) and cases[0].all_at_once
    for name, way in WAYS.items():
        if name not in ALONE if single else name in SLOW:
            continue
        try:
            before = time.process_time()
            made = [way(case, counter) for case in cases]
        except ImportError:
            continue
        spent = 1000 * (time.process_time() - before) / max(1, len(cases))
        lefts = [Left(one) if isinstance(one, str) else one for one in made]
        pairs = list(zip(cases, lefts, strict=True))
        shares = [kept(case, left.text) for case, left in pairs]
        told = [reported(case, left) for case, left in pairs]
        gone = sum(n for n, _ in told)
        had = sum(sum(counter.count_many(list(case.texts))) for case in cases)
        results[name] = {
            "kept": round(sum(shares) / max(1, len(shares)), 4),
            "tokens": round(sum(counter.count(left.text) for left in lefts) / max(1, had), 4),
            "reported": round(sum(n for _, n in told) / gone, 4) if gone else 1.0,
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
    parser.add_argument("--data", type=Path, required=True, help="folder with rot/ and retrieval/")
    parser.add_argument("--questions", type=int, default=100, help="at most so many of each set")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args(arguments)
    try:
        found = run(given.data, given.questions)
    except (RequestError, OSError) as error:
        sys.exit(f"crp: {error}")
    if not found:
        sys.exit(f"crp: {given.data} has neither rot/*.jsonl.gz nor retrieval/*/")
    if given.json:
        given.json.write_text(json.dumps({"results": found}, indent=2) + "\n", encoding="utf-8")
    show(found)


def show(found: dict[str, Any]) -> None:
    """Print a row for each way, a column for each set: share kept, tokens, reported."""
    print(f"{'kept / tokens / reported':28}" + "".join(f"{name[:18]:>20}" for name in found))
    print(f"{'cases':28}" + "".join(f"{row['cases']:>20}" for row in found.values()))
    for way in WAYS:
        cells = (row.get(way) for row in found.values())
        print(
            f"{way:28}"
            + "".join(
                f"{one['kept']:>8.3f}{one['tokens']:>6.2f}{one['reported']:>6.2f}"
                if one
                else f"{'':>20}"
                for one in cells
            )
        )


if __name__ == "__main__":
    main()
