"""What tools answered, as facts that one session holds in memory: for adapters of agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from crp_integrations.errors import FactRejected, LimitReached
from crp_integrations.fabric.ingest.chunker import cut_blocks
from crp_integrations.fabric.records import Block, Fact
from crp_integrations.relay.relay import Relay

Reader: TypeAlias = Callable[[str], Iterable[Block]]

# Source of a result, before the tool's name.
SOURCE: Final = "tool:"


def hold(relay: Relay, session_id: str, facts: list[Fact]) -> int:
    """Hold facts in memory for a session; nothing of them is stored.

    Returns:
        How many facts the session holds more, or held already. 0 too where a session may hold no
        more of them; then what follows from them shows as unsupported.
    """
    if not facts:
        return 0
    try:
        report = relay.add(facts, session_id=session_id, cache="no-store")
    except (FactRejected, LimitReached):
        return 0
    return len(report.facts) + len(report.unchanged)


def result_facts(
    relay: Relay,
    read: Reader,
    name: str,
    asked: Mapping[str, Any],
    text: str,
    call_id: str = "",
) -> Iterator[Fact]:
    """A tool's result as facts.

    Args:
        read: takes a text apart, as `loaders.text.paragraphs` does.
        name: the tool's.
        asked: the arguments that it was called with.
        text: what it answered; nothing but white space is no fact.
    """
    arguments = json.dumps(dict(asked), ensure_ascii=False, default=str)
    frame = f"The tool {name}, asked with {arguments}, answered: "
    yield from passages(relay, read, SOURCE + name, text, frame, place=call_id)


def passages(
    relay: Relay, read: Reader, source_id: str, text: str, frame: str, *, place: str = ""
) -> Iterator[Fact]:
    """What was said as facts: a long text is cut as documents are.

    Args:
        read: takes a text apart, as `loaders.text.paragraphs` does.
        frame: stands in front of a text that is too short to be a fact; one that is too short
            with it as well is none.
        place: where in the source it is.
    """
    said = text.strip()
    if not said:
        return
    settings, counter = relay.settings.fabric.chunking, relay.fabric.counter
    if counter.count(said) < settings.min_fact_tokens:
        said = frame + said
        if counter.count(said) < settings.min_fact_tokens:
            return
    for number, one in enumerate(cut_blocks(read(said), counter=counter, settings=settings), 1):
        yield Fact(content=one.content, source_id=source_id, source_location=f"{place}#{number}")
