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
from crp_integrations.envelope.gather import gather
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.fabric.records import Fact
from crp_integrations.ports import TokenCounter
from crp_integrations.vectors import unit_rows
from crp_integrations.vocabulary import GroundingMode

ASKED = 40
BATCH = 10_000


def measure(
    count: int,
    budget_tokens: int,
    counter: TokenCounter,
    say: Callable[[str], None],
    exact: Path | None = None,
) -> dict[str, Any]:
    """Medians of processor time in milliseconds, over questions that were asked once before.

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
        for start in range(0, count, BATCH):
            ours.namespace.add([Fact(content=text) for text in texts[start : start + BATCH]])
        vectors_only = settings.model_copy(update={"k_lexical": 0})
        taken: dict[str, list[float]] = {"gather": [], "assemble": [], "nearest": [], "words": []}
        packed: list[int] = []
        for warm in (True, False):
            for place, question in enumerate(questions):
                vector = asked[place]
                before, within = time.process_time(), known.seconds
                found = gather(ours.namespace, question, counter=counter, settings=vectors_only)
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
                if warm:
                    # Token counts are in the store from here on.
                    continue
                packed.append(len(envelope.facts))
                taken["gather"].append(1000 * (middle - before - (known.seconds - within)))
                taken["assemble"].append(1000 * (after - middle))
                taken["nearest"].append(
                    cpu_ms(lambda v=vector: ours.namespace.nearest(v, settings.k_nearest + 1))  # type: ignore[misc]
                )
                taken["words"].append(
                    cpu_ms(lambda q=question: ours.namespace.search_text(q, settings.k_lexical))  # type: ignore[misc]
                )
    stages = [one + other for one, other in zip(taken["gather"], taken["assemble"], strict=True)]
    report |= {f"{name}_ms": statistics.median(values) for name, values in taken.items()}
    report["stages_ms"] = statistics.median(stages)
    report["packed"] = statistics.median(packed)
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
