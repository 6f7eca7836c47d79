"""Everything between embedding a question and its envelope, over a store of many facts."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crp_integrations.bench.fabric.embeddings import Known
from crp_integrations.bench.fabric.store import Instant, opened
from crp_integrations.bench.measure import cpu_ms
from crp_integrations.bench.packing.data import DIMENSIONS, NOW, make
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.retrieval import gather
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.ports import TokenCounter
from crp_integrations.vectors import unit_rows
from crp_integrations.vocabulary import GroundingMode

ASKED = 40
ROUNDS = 5
# The step that a search for words reports itself as.
WORDS = "fabric.words"


def measure(
    count: int,
    budget_tokens: int,
    counter: TokenCounter,
    say: Callable[[str], None],
    exact: Path | None = None,
) -> dict[str, Any]:
    """Medians of processor time in milliseconds, over questions that were asked once before.

    Stages are everything from the question's vector to its envelope, with the settings as they are
    by default, apart from the searches for words: those of the question and of the second hop.
    `nearest_ms` is a part of `gather_ms`, measured by itself.

    Args:
        exact: folder of the float32 network, as the recipe writes it.
    """
    report: dict[str, Any] = {"facts": count, **_embedding(exact)}
    material = make(count, counter)
    texts = [fact.content for fact in material.facts]
    questions = [f"Which rule holds for contract {number}?" for number in range(ASKED)]
    generator = np.random.default_rng(1)
    near = generator.integers(count, size=ASKED)
    # A question lies near some passage, at about .6.
    noise = generator.normal(size=(ASKED, DIMENSIONS)) / np.sqrt(DIMENSIONS)
    asked = unit_rows(material.rows[near] + 1.3 * noise)
    known = Known(Instant(DIMENSIONS), [*texts, *questions], np.concatenate([material.rows, asked]))
    settings = EnvelopeSettings()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), known) as ours:
        say(f"storing {count} facts")
        # In one batch, so that the graph covers all of them.
        ours.namespace.add([Fact(content=text) for text in texts])
        steps = ours.watch.steps

        def asking(question: str) -> tuple[float, float, float, int, int]:
            """Milliseconds before the envelope, in it and in word search; candidates and packed."""
            inside, worded = known.seconds, steps.get(WORDS, 0.0)
            before = time.process_time()
            found = gather(ours.namespace, question, counter=counter, settings=settings)
            middle = time.process_time()
            envelope = assemble(
                found,
                budget_tokens=budget_tokens,
                counter=counter,
                grounding=GroundingMode.PREFERRED,
                settings=settings,
                now=NOW,
            )
            after = time.process_time()
            words = steps.get(WORDS, 0.0) - worded
            gathered = 1000 * (middle - before - (known.seconds - inside)) - words
            return gathered, 1000 * (after - middle), words, len(found.facts), len(envelope.facts)

        first = [asking(question) for question in questions]
        # Facts, profiles and token counts are at hand from here on.
        again = [asking(question) for _ in range(ROUNDS) for question in questions]
        nearest = [
            cpu_ms(lambda v=vector: ours.namespace.nearest(v, settings.k_nearest + 1))  # type: ignore[misc]
            for vector in asked
        ]
    names = ("gather_ms", "assemble_ms", "words_ms", "candidates", "packed")
    columns = zip(names, zip(*again, strict=True), strict=True)
    report |= {name: statistics.median(values) for name, values in columns}
    report["nearest_ms"] = statistics.median(nearest)
    report["stages_ms"] = statistics.median(row[0] + row[1] for row in again)
    report["first_stages_ms"] = statistics.median(row[0] + row[1] for row in first)
    return report


def _embedding(exact: Path | None) -> dict[str, Any]:
    """One question through the network that ships, and through the float32 one where given."""
    questions = [f"Which rule holds for the contract of supplier {n}?" for n in range(30)]
    found: dict[str, Any] = {"shipped_query_ms": _query_ms(OnnxEmbedder(threads=1), questions)}
    if exact is not None:
        found["float32_query_ms"] = _query_ms(OnnxEmbedder(exact, threads=1), questions)
    return found


def _query_ms(embedder: OnnxEmbedder, questions: list[str]) -> float:
    embedder.embed_query(questions[0])
    return statistics.median(
        cpu_ms(lambda q=question: embedder.embed_query(q))  # type: ignore[misc]
        for question in questions
    )
