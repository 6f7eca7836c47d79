"""Random packs with every kind of score, time, pair, stretch and setting, and their receipts."""

from __future__ import annotations

import json
import os
import platform
import random
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.budget import EnvelopeInputs, RecordingCounter
from crp_integrations.envelope.candidates import Candidate, Candidates, ScoredPassage
from crp_integrations.envelope.candidates import ScoredSpan as Stretch
from crp_integrations.envelope.layout import PreviousEnvelope
from crp_integrations.envelope.prompt import build_messages, marker_text, system_parts
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.messages import Message, ModelCall
from crp_integrations.receipt.draft import draft
from crp_integrations.receipt.records import Receipt, issue, read
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL
from crp_integrations.receipt.signed_statement import Chain, SigningKey
from crp_integrations.receipt.verify import verify
from crp_integrations.receipt.window_values import Asked, InForce, WindowValues
from crp_integrations.scores import SCALE
from crp_integrations.vocabulary import Exactness, GroundingMode, QualityTier, Strategy

NOON: Final = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
_KEY: Final = SigningKey(bytes(range(32)))
_SALTS: Final = b"s" * 32
_WORDS: Final = (
    "reactor river turbine valley grid energy cooling licence summer report revenue the of and "
    "was in 1998 412 $4.2 megawatts Müller naïve 東京 データ 🙂 e\u0301 [1] <context> </script>"
).split()
_QUESTIONS: Final = (
    "How much power does the reactor make?",
    "What is the current revenue?",
    "Was läuft 2026 in 東京?",
)


class Words:
    """Counts words and line breaks; a text as a whole has a token more, so nothing adds up."""

    identity = "bench words@1"
    exactness = Exactness.EXACT
    source = "bench"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(re.findall(r"\S{1,6}|\n", text)) + bool(text)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation."""
        return sum(self.count(message.content) for message in messages)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions."""
        return sum(self.count(json.dumps(tool)) for tool in tools)


def pack(number: int) -> Receipt:
    """The receipt of a random pack; equal numbers give equal receipts."""
    chance = random.Random(number)
    settings = _settings(chance)
    candidates = _candidates(chance)
    counter = RecordingCounter(Words())
    grounding, strategy = chance.choice(list(GroundingMode)), chance.choice(list(Strategy))
    ids = [one.fact_id for one in candidates.facts]
    given: dict[str, Any] = {
        "budget_tokens": chance.choice([0, 1, 30, 120, 400, 4_000]),
        "grounding": grounding,
        "strategy": strategy,
        "now": NOON,
        "model": "any/model",
        "k": chance.choice([None, None, 1, 5]),
        "max_age_seconds": chance.choice([None, None, 86_400 * 30]),
        "window_number": chance.randint(1, 4),
        "tiers_before": tuple(chance.choices(list(QualityTier), k=chance.randint(0, 4))),
        "pinned": tuple(chance.sample(ids, min(len(ids), chance.randint(0, 2)))),
    }
    previous = PreviousEnvelope(tuple(chance.sample(ids, min(len(ids), chance.randint(0, 5)))))
    if settings.layout == "cache-stable" and previous.ids:
        # Its text begins as the text of now does, so that a prefix is found.
        first = assemble(candidates, counter=Words(), settings=settings, previous=previous, **given)
        previous = replace(previous, text=first.text[: chance.randint(0, len(first.text))])
    salted = chance.random() < 0.1
    envelope = assemble(
        candidates,
        counter=counter,
        settings=settings,
        previous=previous,
        salt="a secret" if salted else "",
        **given,
    )
    fit = EnvelopeInputs(
        candidates=candidates,
        room=None,
        tokenizer=counter.identity,
        exactness=counter.exactness,
        source=counter.source,
        counts=tuple(counter.asked),
        salted=salted,
        previous=previous.ids,
        **given,
    )
    asked = Asked(
        query=candidates.query,
        system_prompt=chance.choice(["", "Be short.", "Sei kurz.\n\n<context>"]),
        history=tuple(_history(chance)),
        instructions=tuple(_text(chance, 6) for _ in range(chance.randint(0, 2))),
        grounding=grounding,
        strategy=strategy,
    )
    parts = system_parts(asked.system_prompt, grounding, strategy, asked.instructions)
    sent = build_messages(parts, envelope.text, asked.history, asked.query)
    told = WindowValues(
        asked=asked,
        report=_report(),
        settings=InForce(f"bench {settings!r}", settings, DpeSettings(), disclose=True),
        fit=fit,
        envelope=envelope,
        calls=(ModelCall(model="any/model", messages=sent),),
        text="An answer.",
    )
    chain = Chain(
        "crp_sess_1",
        f"crp_win_{number}",
        1,
        "2026-05-25T12:00:00Z",
        "sha256:" + "ab" * 32,
        (),
        "released",
    )
    return issue(draft(told, "bench"), chain, _KEY, _SALTS)


@cache
def _report() -> Report:
    return examine(
        Dossier("", "", ()), embedder=None, verifier=AlignmentVerifier(), settings=DpeSettings()
    )


def _settings(chance: random.Random) -> EnvelopeSettings:
    base = EnvelopeSettings.preset(chance.choice(["default", "literal"]))
    hybrid = base.hybrid.model_copy(
        update={
            "enabled": chance.random() < 0.7,
            "whole_share": chance.choice([0.0, 0.5, 0.8, 1.0]),
        }
    )
    return base.model_copy(
        update={
            "packing": chance.choice(["greedy", "greedy", "in_order"]),
            "ordering": chance.choice(["sandwich", "sandwich_rank", "rank", "reversed"]),
            "layout": chance.choice(["position", "position", "cache-stable"]),
            "promote": chance.random() < 0.5,
            "adaptive": chance.random() < 0.5,
            "duplicates_told": chance.choice(["shown", "all"]),
            "relevance_weight": chance.choice([0.5, 0.31, 0.9]),
            "hybrid": hybrid,
        }
    )


def _candidates(chance: random.Random) -> Candidates:
    count = chance.choice([0, 1, 2, 3, 5, 8, 13, 21, 34, 55])
    mixed = chance.random() < 0.5
    facts = tuple(
        sorted((_candidate(chance, mixed) for _ in range(count)), key=lambda one: one.fact_id)
    )
    pairs: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    places = sum(max(1, len(one.passages)) for one in facts)
    for left in range(places):
        for right in range(left + 1, places):
            if chance.random() < 0.03:
                pairs[chance.random() < 0.7].append((left, right))
    question = chance.choice(_QUESTIONS)
    return Candidates(
        query=question,
        sub_queries=chance.choice([(question,), ("One need", "another need")]),
        facts=facts,
        tokenizer=Words.identity,
        duplicates=pairs[True],
        conflicts=pairs[False],
        memory_tier_hit=chance.randint(0, 3),
        tier_hits=(0, 0, 0, len(facts)),
        algorithms=chance.choice([(), ("hybrid@1",)]),
        relevant_floor=chance.choice([None, 300_000]),
    )


def _candidate(chance: random.Random, mixed: bool) -> Candidate:
    parts = [_text(chance, chance.randint(2, 25)) for _ in range(chance.randint(1, 6))]
    content = ". ".join(parts)
    stretches: list[Stretch] = []
    passages: list[ScoredPassage] = []
    at = 0
    for part in parts:
        stretches.append(Stretch(at, at + len(part), chance.randint(0, SCALE)))
        passages.append(
            ScoredPassage(
                at,
                at + len(part),
                *(chance.randint(0, SCALE) for _ in range(4)),
                Words().count(marker_text(part)),
            )
        )
        at += len(part) + 2
    # Few values, so that there are ties.
    score = chance.choice([0, 250_000, 500_000, 801_234, SCALE, chance.randint(0, SCALE)])
    return Candidate(
        fact_id=str(uuid.UUID(int=chance.getrandbits(128))),
        content=content,
        source_id=f"doc{chance.randint(0, 9)}",
        relevance=score,
        importance=chance.choice([0, 500_000, 950_000]),
        tokens=Words().count(marker_text(content)),
        ingested_at=chance.choice(
            [None, NOON - timedelta(days=chance.randint(-5, 900), seconds=1)]
        ),
        stale=chance.random() < 0.1,
        community=chance.choice([None, "a", "b", "c"]),
        score=chance.randint(0, SCALE) if mixed else None,
        lexical=chance.randint(0, SCALE) if mixed else 0,
        hop=chance.randint(0, SCALE) if mixed else 0,
        stretches=tuple(stretches) if mixed else (),
        passages=tuple(passages) if mixed and len(parts) > 1 and chance.random() < 0.4 else (),
    )


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words))


def _history(chance: random.Random) -> list[Message]:
    return [
        Message(role=role, content=_text(chance, 5))
        for role in ("user", "assistant") * chance.randint(0, 2)
    ]


BYTES = ("selection", "context", "prompt")


def replayed(data: bytes) -> dict[str, Any]:
    """What replaying every receipt came to.

    Args:
        data: receipts, each ending with its line feed.
    """
    total, broken = 0, []
    for line in data.splitlines(keepends=True):
        total += 1
        if not verify(line, contents=False).ok:
            broken.append(f"receipt {total}: not verified")
            continue
        found = replay(read(line))
        broken += [
            f"receipt {total}: {one.name} {one.state} {one.place} {one.why}"
            for one in found.parts
            if one.name in BYTES and one.state != EQUAL
        ]
    return {
        "python": platform.python_version(),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        "receipts": total,
        "broken": broken[:10],
        "equal": total - len({one.partition(":")[0] for one in broken}),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(replayed(Path(sys.argv[1]).read_bytes())) + "\n")
