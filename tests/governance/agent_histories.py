"""Agent histories for compaction tests, and an artifact store in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, timedelta
from random import Random

from crp_integrations.governance.compaction.records import ArtifactRef
from crp_integrations.messages import Message, ToolCall
from crp_integrations.seals import sha256

NAMES = "harbour quay dredging budget crane pilot ferry tariff survey permit audit ledger".split()
VERBS = "approved delayed measured billed moved closed opened inspected repaired".split()
TOOLS = ("search", "read_file", "run_tests", "get_ledger")


def sentence(chance: Random) -> str:
    """A sentence with a figure, a date, an id, a quotation, or none of them."""
    a, b = chance.sample(NAMES, 2)
    verb = chance.choice(VERBS)
    day = date(2024, 1, 1) + timedelta(days=chance.randrange(700))
    return chance.choice(
        (
            f"The {a} board {verb} the {b} in spring.",
            f"On {day.isoformat()} the {a} was {verb} for ${chance.randrange(1, 9)}.{chance.randrange(10)} million.",
            f"Order PX-{chance.randrange(1000, 9999)} {verb} {chance.randrange(2, 4000)} parts of the {b}.",
            f'The master said "the {a} stays shut. Nobody passes until {day.day} {day:%B} {day.year}." and left.',
            f"Dr. Smith {verb} {chance.randrange(1, 99)}.{chance.randrange(10)} % of the {a}; see Section {chance.randrange(9)}.{chance.randrange(9)}.",
            f"Use `{a}_{b}(limit={chance.randrange(50)})` where the {b} is {verb}.",
        )
    )


def prose(chance: Random, most: int = 7) -> str:
    """Sentences in paragraphs, now and then with code between."""
    parts = [sentence(chance) for _ in range(chance.randrange(1, most))]
    if chance.random() < 0.2:
        code = "\n".join(
            f"{name} = {chance.randrange(900)}  # {chance.choice(VERBS)}" for name in NAMES[:4]
        )
        parts.insert(chance.randrange(len(parts) + 1), f"\n\n```python\n{code}\n```\n\n")
    return chance.choice((" ", "\n\n")).join(parts)


def log(chance: Random) -> str:
    """Stamped lines of all levels, with a traceback at times."""
    lines = []
    for n in range(chance.randrange(6, 13)):
        level = chance.choice(("INFO", "INFO", "DEBUG", "WARN", "ERROR"))
        lines.append(f"2026-05-{n % 28 + 1:02d} 12:{n % 60:02d}:07 {level} {sentence(chance)}")
        if level == "ERROR" and chance.random() < 0.5:
            lines.append(f'  File "quay.py", line {chance.randrange(400)}, in settle')
    return "\n".join(lines)


def found(chance: Random) -> str:
    """What a search tool answers in JSON."""
    hits = [
        {
            "title": f"{chance.choice(NAMES).title()} report {n}",
            "url": f"https://example.org/{chance.choice(NAMES)}/{n}",
            "content": " ".join(sentence(chance) for _ in range(chance.randrange(1, 4))),
            "score": round(chance.random(), 6),
            "raw_content": None,
        }
        for n in range(chance.randrange(2, 5))
    ]
    return json.dumps(
        {"query": "q", "results": hits},
        indent=chance.choice((None, 2)),
        ensure_ascii=chance.random() < 0.5,
    )


def answer(chance: Random) -> str:
    """Other JSON, or a short word."""
    if chance.random() < 0.3:
        return chance.choice(("ok", "", "done 12", "{}", "[]"))
    rows = [
        {"id": f"L{n}", "amount": chance.randrange(10**6) / 100, "note": sentence(chance)}
        for n in range(chance.randrange(6))
    ]
    return json.dumps({"status": "partial", "rows": rows, "next": None})


def result(chance: Random) -> str:
    return chance.choice((prose, log, found, answer))(chance)


def history(seed: int) -> list[Message]:
    """A history of one to many turns; it ends with an answer, a question, or a tool's result."""
    chance = Random(seed)
    messages = [Message(role="system", content="You keep the harbour's books. " + sentence(chance))]
    kept: list[str] = []
    for _ in range(chance.randrange(1, 4)):
        messages.append(
            Message(role="user", content=f"What of the {chance.choice(NAMES)}? {sentence(chance)}")
        )
        for _ in range(chance.randrange(0, 4)):
            # Some models use the same ids in every round.
            same = chance.random() < 0.3
            calls = [
                ToolCall(
                    id=f"call_{n}" if same else f"call_{len(messages)}_{n}",
                    name=chance.choice(TOOLS),
                    arguments=json.dumps(
                        {"q": chance.choice(NAMES), "limit": chance.randrange(50)}
                    ),
                )
                for n in range(chance.randrange(1, 5))
            ]
            messages.append(
                Message(
                    role="assistant",
                    content=chance.choice(("", sentence(chance))),
                    tool_calls=tuple(calls),
                )
            )
            for call in chance.sample(calls, len(calls)):
                text = chance.choice(kept) if kept and chance.random() < 0.15 else result(chance)
                kept.append(text)
                messages.append(
                    Message(role="tool", content=text, tool_call_id=call.id, name=call.name)
                )
        messages.append(Message(role="assistant", content=prose(chance)))
    end = chance.random()
    if end < 0.3:
        messages.append(Message(role="user", content=f"And the {chance.choice(NAMES)}?"))
    elif end < 0.7:
        while messages[-1].role != "tool" and len(messages) > 2:
            messages.pop()
    return messages


class Shelf:
    """Keeps texts by their hash."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.sources: dict[str, tuple[str, ...]] = {}

    def put(self, text: str, *, kind: str, sources: Sequence[str]) -> ArtifactRef:
        checksum = sha256(text)
        ref = f"artifact:{checksum.removeprefix('sha256:')[:20]}"
        self.texts[ref] = text
        self.sources[ref] = tuple(sources)
        return ArtifactRef(ref=ref, checksum=checksum, kind=kind, sources=tuple(sources))
