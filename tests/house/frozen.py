"""Digests of envelopes, reports, answers and receipts that a change of the code must not change.

`python -m tests.house.frozen` compares with `frozen.json` and names what differs; `--write` makes
the file again, and `--show KEY` prints what a digest is of, to be laid beside an older print.
Everything is made through public doors from seeded inputs, with a standing clock and fixed keys.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from crp_integrations import (
    CRPError,
    Fact,
    Relay,
    Reply,
    SourceKind,
    asked_by,
    compact,
    count_tokens,
    examine,
    from_headers,
    pack,
)

# The file form of a receipt, as the page on receipts shows it: the one name from below the doors.
from crp_integrations.receipt.records import write as receipt_file

STORED = Path(__file__).with_name("frozen.json")
NOON = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
KEY = "ab" * 32
MODEL = "any/model"
Case = Callable[[], Any]


class WordEmbedder:
    """A bag of words hashed into 256 dimensions."""

    identity = "frozen-words/256"
    dimensions = 256
    thresholds: Mapping[str, float] = {}

    def embed_passages(self, texts: Sequence[str]) -> Any:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float64)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()) or [""]:
                row[hashlib.sha256(word.encode()).digest()[0]] += 1.0
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def embed_query(self, text: str) -> Any:
        return self.embed_passages([text])[0]


class Scripted:
    """A model that says its script, the last entry again and again."""

    model = "scripted/judge"

    def __init__(self, *script: str | Reply | Exception) -> None:
        self.script = list(script)

    def call(self, call: Any) -> Reply:
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if callable(said):
            said = said(call)
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, Reply) else Reply(text=said, model=call.model)

    async def acall(self, call: Any) -> Reply:
        return self.call(call)

    def stream(self, call: Any) -> Iterator[str | Reply]:
        reply = self.call(call)
        yield from re.findall(r"\S+\s*", reply.text)
        yield reply


class CountedIds:
    """Ids by number."""

    made = 0

    def new(self, prefix: str) -> str:
        self.made += 1
        return f"{prefix}{self.made:016d}"


EMBEDDER = WordEmbedder()

# Inputs. ---------------------------------------------------------------------------------------

PLACES = "Meridian Larkspur Northfield Castellan Brightwater Ashdown Ferrow Quillon".split()
THINGS = "reactor dam turbine bridge archive licence pipeline observatory".split()
SENTENCES = (
    "The {place} {thing} was commissioned on {day} March {year}.",
    "The {place} {thing} delivers {number} megawatts.",
    "{place} Energy reported revenue of ${decimal} million in {year}.",
    "The {place} {thing} does not draw water from the river during summer.",
    "The {thing} may be opened only if {place} Works has approved it in writing.",
    "Dr. Anna {place} directs the {thing} from her office in {other}.",
    "All {number} staff of the {place} {thing} must wear a badge except visitors.",
    "The {place} {thing} costs {number} EUR a month, and {other} pays {percent} percent of it.",
)
FOREIGN = (
    "Der Reaktor in {place} wurde am {day}. März {year} in Betrieb genommen und liefert {number} MW.",
    "Le barrage de {place} a été vendu en {year} pour {number} millions d'euros.",
    "El puente de {place} mide {number} metros y se abrió en {year}.",
    "メリディアン原子炉は{year}年に稼働し、{number}メガワットを供給する。",
    "Плотина {place} была построена в {year} году и стоила {number} миллионов.",
    "منشأة {place} تنتج {number} ميغاواط منذ {year}.",
)
PERSONAL = (
    "Write to anna.{low}@example.org or call +44 20 7946 0{day:02d}8 about the {thing}.",
    "The card 4111 1111 1111 1111 of Anna {place} was charged {number} EUR.",
    "Her IBAN is DE89 3704 0044 0532 0130 00 and she was born on {day} March {year}.",
)


def sentence(rng: random.Random, kinds: Sequence[str] = SENTENCES) -> str:
    """A sentence with names and figures."""
    place, other = rng.sample(PLACES, 2)
    return rng.choice(kinds).format(
        place=place,
        low=place.lower(),
        other=other,
        thing=rng.choice(THINGS),
        day=rng.randint(1, 28),
        year=rng.randint(1950, 2024),
        number=rng.randint(2, 990),
        decimal=rng.randint(10, 99) / 10,
        percent=rng.randint(1, 99),
    )


def table(rng: random.Random) -> str:
    """A table in Markdown."""
    rows = [
        f"| {place} | {rng.randint(1, 99)} MW | {rng.randint(1950, 2024)} |" for place in PLACES[:5]
    ]
    return "\n".join(["| site | power | year |", "|---|---|---|", *rows])


def document(rng: random.Random, paragraphs: int) -> str:
    """A long text with headings."""
    parts = [f"# The {rng.choice(PLACES)} {rng.choice(THINGS)}"]
    for number in range(paragraphs):
        parts.append(" ".join(sentence(rng) for _ in range(rng.randint(2, 5))))
        if number % 3 == 2:
            parts.append(f"## Section {number}")
    return "\n\n".join(parts)


def near(rng: random.Random, text: str) -> str:
    """The text once more: alike, with another number, or denied."""
    changed = (
        text,
        text.rstrip(".") + ", as was said before.",
        re.sub(r"\d+", lambda found: str(int(found[0]) + 1), text, count=1),
        text.replace(" was ", " was not ").replace(" delivers ", " does not deliver "),
    )
    return rng.choice(changed)


def material(rng: random.Random, number: int) -> list[str | Fact]:
    """Facts of many makes."""
    found: list[str | Fact] = []
    for _ in range(number):
        draw = rng.random()
        if draw < 0.45:
            found.append(" ".join(sentence(rng) for _ in range(rng.randint(1, 3))))
        elif draw < 0.55 and found:
            last = found[-1]
            found.append(near(rng, last if isinstance(last, str) else last.content))
        elif draw < 0.65:
            found.append(sentence(rng, FOREIGN))
        elif draw < 0.72:
            found.append(sentence(rng, PERSONAL))
        elif draw < 0.80:
            found.append(table(rng))
        elif draw < 0.86:
            found.append(document(rng, rng.randint(2, 6)))
        else:
            found.append(
                Fact(
                    content=sentence(rng),
                    source_id=f"doc{rng.randint(0, 3)}",
                    kind=rng.choice(list(SourceKind)),
                    importance_weight=rng.choice([0.2, 0.6, 0.9, 0.95]),
                    ingested_at=NOON - timedelta(days=rng.randint(0, 500)),
                    labels=rng.choice([(), ("internal",)]),
                )
            )
    return found


def asked(rng: random.Random, facts: Sequence[str | Fact]) -> str:
    """A question on one or two of the facts."""
    texts = [fact if isinstance(fact, str) else fact.content for fact in facts]
    words = re.findall(r"\w+", rng.choice(texts)) or ["site"]
    first = " ".join(words[: rng.randint(2, 7)])
    kinds = (
        f"What is known of {first}?",
        f"When was the {rng.choice(PLACES)} {rng.choice(THINGS)} commissioned?",
        f"What is {first}? And how many megawatts does {rng.choice(PLACES)} deliver?",
        f"What is the latest revenue of {rng.choice(PLACES)} Energy?",
        f"Wie viel Megawatt liefert {rng.choice(PLACES)}?",
    )
    return rng.choice(kinds)


def answered(rng: random.Random, facts: Sequence[str | Fact]) -> str:
    """An answer that quotes, changes, denies and invents."""
    texts = [fact if isinstance(fact, str) else fact.content for fact in facts]
    parts = []
    for _ in range(rng.randint(1, 4)):
        own = re.split(r"(?<=\.)\s", rng.choice(texts))[0]
        draw = rng.random()
        parts.append(own if draw < 0.4 else near(rng, own) if draw < 0.75 else sentence(rng))
    if rng.random() < 0.15:
        parts.append(sentence(rng, PERSONAL))
    if rng.random() < 0.15:
        parts.insert(0, "I cannot answer that in full.")
    joiner = rng.choice([" ", "\n\n", "\n- "])
    return joiner.join(parts)


# Cases. ----------------------------------------------------------------------------------------


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """`CRP_*` variables for a while, and no others."""
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("CRP_")}
    os.environ.update(CRP_CLOCK=NOON.isoformat(), **variables)
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("CRP_")]:
            del os.environ[name]
        os.environ.update(before)


def packs() -> Iterator[tuple[str, Case]]:
    for number in range(110):
        rng = random.Random(f"pack {number}")
        facts = material(rng, rng.choice([1, 3, 8, 15, 30]))
        how: dict[str, Any] = {
            "model": rng.choice(["gpt-4o", "gpt-4", MODEL]),
            "budget_tokens": rng.choice([None, 0, 20, 60, 150, 400, 1200]),
            "grounding": rng.choice(["context-strict", "context-preferred", "open"]),
            "k": rng.choice([None, None, 1, 4]),
            "now": NOON,
            "embedder": EMBEDDER,
        }
        preset = rng.choice(["default", "default", "literal"])
        case = partial(pack, asked(rng, facts), facts, **how)
        yield f"pack/{number:03d}/{preset}", partial(_under, preset, case)


def _under(preset: str, case: Case) -> Any:
    with environment(CRP_PRESET=preset):
        return case()


def reports() -> Iterator[tuple[str, Case]]:
    for number in range(110):
        rng = random.Random(f"examine {number}")
        facts = material(rng, rng.choice([1, 2, 5, 9]))
        how: dict[str, Any] = {"embedder": EMBEDDER, "no_store": rng.random() < 0.2}
        if rng.random() < 0.3:
            how["prior"] = [answered(rng, facts)]
        if rng.random() < 0.2:
            how["system_prompt"] = sentence(rng)
        if rng.random() < 0.2:
            how["conversation"] = [{"role": "user", "content": sentence(rng)}]
        how["grounding"] = rng.choice(["context-strict", "context-preferred", "open"])
        preset = rng.choice(["default", "default", "literal"])
        question = rng.choice([None, asked(rng, facts)])
        case = partial(examine, answered(rng, facts), facts, question, **how)
        yield f"examine/{number:03d}/{preset}", partial(_under, preset, case)
    for number in range(10):
        rng = random.Random(f"judged {number}")
        facts = material(rng, 4)
        case = partial(
            _judged, answered(rng, facts), facts, asked(rng, facts), rng.choice([0, 1, 2])
        )
        yield f"judge/{number:03d}", case


def _judged(answer: str, facts: list[str | Fact], question: str, kind: int) -> Any:
    """A report with a judge that finds each claim supported, contradicted, or fails."""
    judge = Scripted(ValueError("away") if kind == 2 else partial(_verdicts, bool(kind)))
    return examine(answer, facts, question, embedder=EMBEDDER, judge=judge)


def _verdicts(wrong: bool, call: Any) -> str:
    text = "\n".join(message.content for message in call.messages)
    at = text.find('{"id":"')
    sent = json.JSONDecoder().raw_decode(text, at)[0]
    place, passage = (sent["passages"] or [["", ""]])[0]
    quotes = [{"in": place, "text": " ".join(passage.split()[:6])}]
    claims = [
        {"n": one[0], "status": "CONTRADICTED", "kind": "NUMBER", "wrong": "", "quotes": quotes}
        if wrong
        else {"n": one[0], "status": "SUPPORTED", "quotes": quotes}
        for one in sent["answer"]
        if isinstance(one, list)
    ]
    return json.dumps({"id": sent["id"], "claims": claims, "unnumbered": []})


def histories() -> Iterator[tuple[str, Case]]:
    for number in range(30):
        rng = random.Random(f"compact {number}")
        messages: list[dict[str, Any]] = [{"role": "system", "content": sentence(rng)}]
        for turn in range(rng.randint(2, 7)):
            messages.append({"role": "user", "content": sentence(rng)})
            if rng.random() < 0.6:
                call = {"name": "look_up", "arguments": json.dumps({"place": rng.choice(PLACES)})}
                made = {"id": f"call_{turn}", "type": "function", "function": call}
                messages.append({"role": "assistant", "content": "", "tool_calls": [made]})
                found = rng.choice(
                    [
                        document(rng, 5),
                        table(rng),
                        json.dumps(
                            [{"site": place, "power": rng.randint(1, 99)} for place in PLACES]
                        ),
                    ]
                )
                messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": found})
            messages.append({"role": "assistant", "content": sentence(rng)})
        messages.append({"role": "user", "content": sentence(rng)})
        budget = rng.choice([None, 150, 300, 600, 1500])
        how: dict[str, Any] = {"model": "gpt-4o", "budget_tokens": budget, "now": NOON}
        yield f"compact/{number:03d}", partial(compact, messages, **how)
        if number < 10:
            yield f"tokens/{number:03d}", partial(count_tokens, messages, "gpt-4o")


QUERIES = (
    "When was the Meridian reactor commissioned?",
    "How many megawatts does Larkspur deliver?",
)
TOOL = {
    "type": "function",
    "function": {"name": "look_up", "description": "Looks up.", "parameters": {"type": "object"}},
}
# Ways to ask, by name.
ASKING: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "budget": {"budget_tokens": 60},
    "strict": {"grounding": "context-strict", "k": 2},
    "policy": {"policy": "halt-on CRITICAL; warn-on HIGH; block-pii"},
    "halt": {"policy": "halt-on MEDIUM; require-grounding 0.90; block-fabrication"},
    "report-only": {"report_only": "require-quality S; block-ungrounded"},
    "reflexive": {"policy": "upgrade-on-risk reflexive; halt-on CRITICAL", "strategy": "reflexive"},
    "fan": {"strategy": "hierarchical"},
    "tools": {"tools": [TOOL], "temperature": 0.2, "seed": 7, "max_tokens": 300},
    "history": {
        "history": [
            {"role": "user", "content": "Hello."},
            {"role": "assistant", "content": "Yes?"},
        ],
        "system_prompt": "Answer in a sentence.",
    },
    "no-store": {"cache": "no-store"},
    "headers": from_headers(
        {"CRP-Safety-Policy": "warn-on HIGH", "CRP-Context-Cache": "max-age=60"}
    ),
    "quality": {"accept_quality": ["S", "A"]},
    "needs": {"sub_queries": ["Meridian reactor", "Larkspur revenue"], "decompose": "none"},
}


def opened(rng: random.Random, *script: Any, **options: Any) -> Relay:
    """A relay in memory over some facts."""
    how = {"key": KEY, "clock": NOON, "ids": CountedIds(), "embedder": EMBEDDER, **options}
    relay = Relay.open(models=Scripted(*script), model=MODEL, **how)
    texts = [sentence(rng) for _ in range(12)]
    relay.add([*texts, near(rng, texts[0]), table(rng), sentence(rng, PERSONAL)])
    relay.add([sentence(rng), sentence(rng, FOREIGN)], kind="official")
    return relay


def windows() -> Iterator[tuple[str, Case]]:
    for number in range(5):
        for name, asking in ASKING.items():
            preset = "literal" if number == 4 else "default"
            yield f"ask/{name}/{number}/{preset}", partial(_asked, f"{number}", asking, preset)
    for number in range(12):
        yield f"session/{number}", partial(_session, number)
    for number in range(20):
        yield f"preview/{number:02d}", partial(_previewed, number)
    for name in ("delegate", "relay_judge", "failed", "stream", "batch", "fabric"):
        for number in range(3):
            yield f"{name}/{number}", partial(globals()[f"_{name}"], number)


def _asked(seed: str, asking: Mapping[str, Any], preset: str) -> Any:
    rng = random.Random(f"ask {seed}")
    facts = [sentence(rng) for _ in range(4)]
    with (
        environment(),
        # Windows beside each other take ids as threads come to them: one thread, one order.
        patch("crp_integrations.relay.drive.FAN_THREADS", 1),
        opened(rng, answered(rng, facts), answered(rng, facts), preset=preset) as relay,
    ):
        relay.add(facts)
        return _window(relay, asked(rng, facts), asking)


def _window(relay: Relay, question: str, asking: Mapping[str, Any]) -> list[Any]:
    """An answer or what came instead, and the receipts that stand behind it."""
    try:
        answer = relay.ask(question, **asking)
    except CRPError as error:
        found = {name: value for name, value in vars(error).items() if not name.startswith("_")}
        return [type(error).__name__, str(error), found.get("report"), *_receipts(relay)]
    return [answer, *_receipts(relay)]


def _receipts(relay: Relay) -> list[Any]:
    found = [relay.receipt(id_) for id_ in relay.receipts().ids()]
    return [receipt_file(one).decode() for one in found if one is not None]


def _session(number: int) -> Any:
    rng = random.Random(f"session {number}")
    facts = [sentence(rng) for _ in range(4)]
    script = [answered(rng, facts) for _ in range(6)]
    if number % 3 == 0:
        script[1] = Reply(text=script[1], model=MODEL, finish_reason="length")
    found: list[Any] = []
    with environment(), opened(rng, *script, policy="halt-on CRITICAL") as relay:
        relay.add(facts)
        more: dict[str, Any] = {}
        for _ in range(3):
            try:
                answer = relay.ask(asked(rng, facts), **more)
            except CRPError as error:
                found.append([type(error).__name__, str(error)])
                break
            found.append(answer)
            more = {"session_id": answer.session_id}
            if answer.continuation_id and rng.random() < 0.5:
                more["continuation_ids"] = [answer.continuation_id]
        trail = relay.verify()
        found.append([trail.events, trail.windows, trail.sessions])
        return [*found, *_receipts(relay)]


def _previewed(number: int) -> Any:
    rng = random.Random(f"preview {number}")
    with environment(), opened(rng, "") as relay:
        return relay.preview(rng.choice(QUERIES), budget_tokens=rng.choice([None, 40, 100]))


def _delegate(number: int) -> Any:
    rng = random.Random(f"delegate {number}")
    with environment(), opened(rng, sentence(rng), sentence(rng)) as relay:
        first = relay.ask(QUERIES[0])
        down = relay.delegate(first.session_id)
        return [first, *_window(relay, QUERIES[1], asked_by(down))]


def _relay_judge(number: int) -> Any:
    rng = random.Random(f"judge {number}")
    script = answered(rng, [sentence(rng)])
    judge = Scripted(partial(_verdicts, number == 1))
    with environment(), opened(rng, script, judge=judge) as relay:
        return _window(relay, QUERIES[0], {})


def _failed(number: int) -> Any:
    rng = random.Random(f"failed {number}")
    errors = (ValueError("away"), TimeoutError("late"), ConnectionError("cut"))
    with environment(), opened(rng, errors[number]) as relay:
        try:
            relay.ask(QUERIES[0])
        except (CRPError, *map(type, errors)) as error:
            return [type(error).__name__, *_receipts(relay)]
        return _receipts(relay)


def _stream(number: int) -> Any:
    rng = random.Random(f"stream {number}")
    with environment(), opened(rng, f"{sentence(rng)} {sentence(rng)}") as relay:
        return list(relay.stream(QUERIES[0], live=number == 1))


def _batch(number: int) -> Any:
    rng = random.Random(f"batch {number}")
    with environment(), opened(rng, sentence(rng)) as relay:
        made = relay.batch(QUERIES)
        # Which thread gets which id is chance.
        return [[one.text, one.envelope.text, one.report.claims] for one in made.answers]


def _fabric(number: int) -> Any:
    rng = random.Random(f"fabric {number}")
    with environment(), opened(rng, "") as relay:
        report = relay.add([sentence(rng) for _ in range(5)], kind="research")
        fabric = relay.fabric
        found = [report, fabric.state_hash()]
        fabric.quarantine(list(report.facts)[:2], "Is it so?")
        found.append(fabric.state_hash())
        fabric.lift(list(report.facts)[:1])
        nearest = fabric.nearest(EMBEDDER.embed_query(QUERIES[0]), 5)
        worded = fabric.search_text("Meridian reactor", 5)
        found += [
            fabric.state_hash(),
            *([hit.fact_id for hit in hits] for hits in (nearest, worded)),
        ]
        context = relay.assemble(QUERIES[0], 800, "interleaved")
        return [*found, context]


def adapters() -> Iterator[tuple[str, Case]]:
    for number in range(8):
        yield f"langchain/{number}", partial(_langchain, number)
        yield f"llama-index/{number}", partial(_llama_index, number)


def _langchain(number: int) -> Any:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    from crp_integrations.langchain import CRPRetriever, envelope_text

    rng = random.Random(f"langchain {number}")
    texts = [str(one) for one in material(rng, 8) if isinstance(one, str)]

    class Given(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [Document(text, metadata={"source": f"s{n}"}) for n, text in enumerate(texts)]

    # Without it the embedder that ships would rank, whose digits depend on the processor.
    with environment(CRP_EMBEDDER="static"):
        retriever = CRPRetriever.wrap(
            Given(), model="gpt-4o", budget_tokens=rng.choice([50, 200, 800])
        )
        wrapped = [one.page_content for one in retriever.invoke(asked(rng, texts))]
        with opened(rng, "") as relay:
            found = CRPRetriever(relay=relay, model=MODEL, budget_tokens=100, k=4).invoke(
                QUERIES[0]
            )
            return [wrapped, [one.metadata for one in found], envelope_text(found)]


def _llama_index(number: int) -> Any:
    from llama_index.core.schema import NodeWithScore, TextNode

    from crp_integrations.llama_index import CRPNodePostprocessor

    rng = random.Random(f"llama-index {number}")
    texts = [str(one) for one in material(rng, 8) if isinstance(one, str)]
    nodes = [
        NodeWithScore(node=TextNode(text=text, id_=f"n{n}"), score=0.5)
        for n, text in enumerate(texts)
    ]
    with environment(CRP_EMBEDDER="static"):
        made = CRPNodePostprocessor(model="gpt-4o", budget_tokens=rng.choice([50, 200, 800]))
        found = made.postprocess_nodes(nodes, query_str=asked(rng, texts))
    return [[one.node.node_id, one.node.get_content()] for one in found]


# Digests. --------------------------------------------------------------------------------------


def cases() -> Iterator[tuple[str, Case]]:
    """Every case by its key."""
    for some in (packs, reports, histories, windows, adapters):
        yield from some()


def canonical(value: Any) -> str:
    """Canonical JSON of whatever a case gives."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, CRPError):
        return [type(value).__name__, str(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if hasattr(value, "__iter__"):
        return [_plain(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def made(case: Case) -> str:
    """What a case gives, or the error that it raises."""
    # A report tells the milliseconds of a judge's call.
    with environment(), patch("time.perf_counter", return_value=0.0):
        try:
            return canonical(case())
        except CRPError as error:
            return canonical([type(error).__name__, str(error)])


def digests() -> dict[str, str]:
    """The digest of every case by its key."""
    return {key: hashlib.sha256(made(case).encode()).hexdigest()[:32] for key, case in cases()}


def differing() -> list[str]:
    """Keys whose digests are not those that are stored, and those that are missing or new."""
    stored, now = json.loads(STORED.read_text(encoding="utf-8")), digests()
    return sorted(key for key in {*stored, *now} if stored.get(key) != now.get(key))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the digests of now")
    parser.add_argument("--show", metavar="KEY", help="print what a digest is of")
    told = parser.parse_args(arguments)
    if told.show:
        print(json.dumps(json.loads(made(dict(cases())[told.show])), indent=1, ensure_ascii=False))
        return 0
    if told.write:
        STORED.write_text(json.dumps(digests(), indent=0) + "\n", encoding="utf-8")
        return 0
    changed = differing()
    print("\n".join(changed) or "as stored")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
