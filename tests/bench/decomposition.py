"""Measures what decomposing passages into facts does to evidence recall.

`python -m tests.bench.decomposition --data DIR` reads `DIR/retrieval/NAME`, ingests the
documents of each set once for every way of decomposing, gathers and packs an envelope for every
query within a budget, and looks for the query's evidence in it.

Evidence recall is the share of a query's evidence characters that are in the packed facts, also
where another document says the same; full recall is the share of queries with at least 90 % of
every piece. Evidence of `hotpot` and `chunking_eval` is sentences, that of `musique` whole
paragraphs; for it the share of hops whose answer stands in a packed fact of the hop's own
paragraph is reported as well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.engines.system import FixedClock
from crp_integrations.engines.tokens import counter_for
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.evaluation.data_sets import rows_of
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.settings import ChunkingSettings, FabricSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.loaders.text import read_text
from crp_integrations.ports import Embedder, TokenCounter
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import GroundingMode

Way = Literal["never", "standalone", "always"]
MODEL = "gpt-4"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FULL = 0.9


def ingest(
    documents: Sequence[dict[str, Any]], way: Way, embedder: Embedder, counter: TokenCounter
) -> dict[str, Namespace]:
    """A namespace for each collection, with its documents decomposed in one way."""
    # Paragraph by paragraph, as §4.2 has it: what is compared is what each becomes.
    chunking = ChunkingSettings(join_up_to_tokens=0, split_above_tokens=512, decompose=way)
    settings = FabricSettings(chunking=chunking)
    fabric = Fabric(
        MemoryStore(),
        embedder,
        counter,
        FixedClock(NOW),
        FixedKeyRing(b"b" * 32),
        settings=settings,
    )
    collections: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in documents:
        collections[one["collection"]].append(one)
    made: dict[str, Namespace] = {}
    for name, members in collections.items():
        made[name] = fabric.bind(Subject(tenant=name))
        made[name].ingest(
            [
                read_text(one["text"].encode(), uri=one["doc_id"], name=one["title"] or "untitled")
                for one in members
            ]
        )
    return made


def covered(envelope: Envelope, text: str, start: int, end: int) -> int:
    """Characters of a piece of a text that stand in the facts of an envelope."""
    found = bytearray(end - start)
    for fact in envelope.facts:
        place = text.find(fact.content)
        while place >= 0:
            low, high = max(place, start), min(place + len(fact.content), end)
            if low < high:
                found[low - start : high - start] = b"\1" * (high - low)
            place = text.find(fact.content, place + 1)
    return sum(found)


def measure(
    folder: Path, ways: Sequence[Way], budgets: Sequence[int], embedder: Embedder
) -> dict[str, Any]:
    """One set: facts, tokens a fact, and recall at each budget for each way."""
    documents = rows_of(folder / "documents.jsonl.gz")
    queries = rows_of(folder / "queries.jsonl.gz")
    # As the loader decodes them, or offsets would differ.
    texts = {one["doc_id"]: one["text"] for one in documents}
    counter = counter_for(MODEL)
    report: dict[str, Any] = {"documents": len(documents), "queries": len(queries)}
    for way in ways:
        began = time.process_time()
        namespaces = ingest(documents, way, embedder, counter)
        facts = sum(namespace.size() for namespace in namespaces.values())
        entry: dict[str, Any] = {"facts": facts, "ingest_cpu_s": round(time.process_time() - began)}
        for budget in budgets:
            entry[str(budget)] = recall(namespaces, queries, texts, budget, counter)
        report[way] = entry
        sys.stderr.write(f"{folder.name} {way}: {json.dumps(entry)}\n")
    return report


def recall(
    namespaces: dict[str, Namespace],
    queries: Sequence[dict[str, Any]],
    texts: dict[str, str],
    budget: int,
    counter: TokenCounter,
) -> dict[str, float]:
    """Mean evidence recall, full recall, and the share of hops that are answered."""
    settings = EnvelopeSettings()
    shares: list[float] = []
    full: list[bool] = []
    hops: list[bool] = []
    for query in queries:
        namespace = namespaces[query["collection"]]
        candidates = gather(namespace, query["query"], counter=counter, settings=settings)
        envelope = assemble(
            candidates,
            budget_tokens=budget,
            counter=counter,
            grounding=GroundingMode.PREFERRED,
            settings=settings,
            now=NOW,
            model=MODEL,
        )
        pieces = [
            (
                covered(envelope, texts[piece["doc_id"]], piece["start"], piece["end"]),
                piece["end"] - piece["start"],
            )
            for piece in query["evidence"]
        ]
        if pieces:
            shares.append(sum(found for found, _ in pieces) / sum(whole for _, whole in pieces))
            full.append(all(found >= FULL * whole for found, whole in pieces))
        for document, answer in query["meta"].get("hops", []):
            told = [f.content for f in envelope.facts if f.content in texts[document]]
            hops.append(any(answer.lower() in content.lower() for content in told))
    result = {
        "recall": round(statistics.fmean(shares), 4),
        "full": round(statistics.fmean(full), 4),
    }
    if hops:
        result["hops"] = round(statistics.fmean(hops), 4)
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog="tests.bench.decomposition", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory that holds retrieval/")
    parser.add_argument("--sets", nargs="+", default=["hotpot", "musique"])
    parser.add_argument("--ways", nargs="+", default=list(get_args(Way)), choices=get_args(Way))
    parser.add_argument("--budgets", nargs="+", type=int, default=[512, 1024])
    parser.add_argument("--json", type=Path, help="where to write the report")
    given = parser.parse_args(arguments)
    embedder = OnnxEmbedder()
    report = {
        "identity": embedder.identity,
        **{
            name: measure(given.data / "retrieval" / name, given.ways, given.budgets, embedder)
            for name in given.sets
        },
    }
    text = json.dumps(report, indent=2) + "\n"
    sys.stdout.write(text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
