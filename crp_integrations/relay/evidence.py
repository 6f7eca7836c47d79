"""The evidence that an answer is checked against; all entry points use these functions.

Evidence is the packed context, tool results in the conversation, facts that earlier windows of the
session showed, facts that the caller gave, and the application's system prompt. A model's earlier
answers and summaries of them are not evidence. Neither are results of failed tools, nor parts of a
result that repeat arguments which the model wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from crp_integrations.dpe.dossier import SYSTEM
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.dpe.rejections import without_rejected
from crp_integrations.envelope.candidates import is_summary
from crp_integrations.envelope.continuation import seen_hashes
from crp_integrations.envelope.records import EarlierWindow, Envelope, PackedFact
from crp_integrations.errors import RequestError, StoreError
from crp_integrations.fabric.records import Fact
from crp_integrations.messages import Message, ToolCall
from crp_integrations.seals import canonical, sha256
from crp_integrations.vectors import FloatRows

if TYPE_CHECKING:
    from crp_integrations.fabric.namespace import Namespace
    from crp_integrations.fabric.view import FabricView

# Prefix of a tool result's source; the tool's name follows.
TOOL_SOURCE: Final = "tool:"
# Maximum number of facts of earlier windows; the last ones shown are used.
MAX_EARLIER_FACTS: Final = 200
# Importance of a tool result for omissions: 0, since no one has marked it as important.
NO_IMPORTANCE: Final = 0.0
# Replaces an earlier answer of a model, which is never evidence.
EARLIER_ANSWER: Final = "(earlier answer)"
# Minimum number of words with a letter at which an echoed argument is removed. A shorter argument
# names what the result is about, such as the city of a weather report, and stays.
MIN_STATING_WORDS: Final = 3
# Replaces an argument that a tool repeats in its text.
ECHO_MARK: Final = "…"


@dataclass(frozen=True, slots=True)
class AnswerEvidence:
    """Passages that an answer is checked against.

    Attributes:
        passages: id and text of each, in the order in which the model saw them. A tool's result is
            named `tool:NAME#N`, the system prompt `system`; a summary of earlier answers keeps
            its position but has an empty text.
        importances: importance of each passage, [0, 1]; empty when not known.
        whole: ids whose text is the whole text of a stored fact, which has a stored vector.
        rejected: claims that sub-agents' reports flag; they were removed from tool results here.
    """

    passages: tuple[tuple[str, str], ...]
    importances: tuple[float, ...] = ()
    whole: frozenset[str] = frozenset()
    sources: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rejected: tuple[RejectedClaim, ...] = ()
    system: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the passages, in order."""
        return tuple([name for name, _ in self.passages])


def evidence_of(
    context: Envelope | Sequence[PackedFact | Fact | str] | None,
    messages: Sequence[Message] = (),
    earlier: Sequence[Fact] = (),
    rejected: Sequence[RejectedClaim] = (),
    system: str = "",
) -> AnswerEvidence:
    """The evidence for an answer.

    Args:
        rejected: claims that sub-agents' reports flag; they are removed from tool results and from
            texts that the caller gave, which may be such results.
        system: the application's system prompt, which may contain facts.
    """
    items: Sequence[PackedFact | Fact | str] = (
        () if context is None else context.facts if isinstance(context, Envelope) else context
    )
    passages = [
        (name, without_rejected(text, rejected) if isinstance(item, str) else text)
        for item, (name, text) in zip(items, named_passages(items), strict=True)
    ]
    weights = [item.importance_weight for item in items if not isinstance(item, str)]
    for place, item in enumerate(items):
        if not isinstance(item, str) and is_summary(item.source_id or ""):
            # Its position stays, so that citations by number mean what the model saw. It is not
            # empty, since a passage without words counts as one that was not read.
            passages[place] = (item.fact_id, EARLIER_ANSWER)
            if len(weights) == len(items):
                weights[place] = NO_IMPORTANCE
    known = {name for name, _ in passages}
    whole = frozenset(
        item.fact_id
        for item, (_, text) in zip(items, passages, strict=True)
        if isinstance(item, PackedFact) and text and text != EARLIER_ANSWER and not item.spans
    )
    from_earlier = [fact for fact in earlier if fact.fact_id not in known]
    results = [(name, without_rejected(text, rejected)) for name, text in tool_results(messages)]
    if system.strip():
        # Last, so that citations by number mean what the model saw.
        results.append((SYSTEM, readable(system)))
    weighted = len(weights) == len(passages)
    further = [fact.importance_weight for fact in from_earlier] + [NO_IMPORTANCE] * len(results)
    return AnswerEvidence(
        (*passages, *((fact.fact_id, fact.content) for fact in from_earlier), *results),
        (*weights, *further) if weighted and passages else (),
        whole | {fact.fact_id for fact in from_earlier},
        {fact.fact_id: fact.source_id for fact in from_earlier},
        {fact.fact_id: tuple(fact.labels) for fact in from_earlier},
        tuple(rejected),
        system,
    )


def tool_results(messages: Iterable[Message]) -> tuple[tuple[str, str], ...]:
    """Name and text of each tool result in a conversation, in order.

    Results of failed tools are left out, as are parts that repeat the call's arguments, since they
    are the model's own words (`without_echoes`).

    >>> tool_results([Message(role="tool", name="fares", content="Lunch costs 12 euros.")])
    (('tool:fares#1', 'Lunch costs 12 euros.'),)
    """
    return tuple((name, text) for _, name, text, _ in results_in(messages))


def results_in(messages: Iterable[Message]) -> Iterator[tuple[int, str, str, ToolCall | None]]:
    """Place, name, text and call of each tool result in a conversation, as in `tool_results`."""
    called: dict[str, ToolCall] = {}
    count = 0
    for place, message in enumerate(messages):
        called |= {call.id: call for call in message.tool_calls}
        if message.failed or not (message.role == "tool" or message.observation):
            continue
        call = called.get(message.tool_call_id or "")
        content = message.observation or message.content
        text = without_echoes(content, call.arguments if call else "")
        if text.strip():
            count += 1
            name = message.name or (call.name if call else "") or "result"
            yield place, f"{TOOL_SOURCE}{name}#{count}", readable(text), call


def has_evidence(messages: Sequence[Message]) -> bool:
    """Whether a conversation contains anything that an answer can be checked against."""
    instructed = any(message.role == "system" and message.content.strip() for message in messages)
    return instructed or bool(tool_results(messages))


def without_echoes(text: str, arguments: str | Mapping[str, Any]) -> str:
    """A tool's result without the parts that only repeat its call's arguments.

    Arguments are the model's own words: an echo of them does not support an answer. In a JSON
    result a value of three words or more that equals the argument of the same key is left out; in a
    text such an argument is replaced where it occurs literally, set off from the tool's own words.
    Shorter values stay, since they say what a result is about. A result that contains only
    arguments, or that reports a failure of the tool (`isError`), becomes empty.

    Args:
        arguments: JSON as the model wrote it, or a mapping.

    >>> without_echoes('{"saved": true, "note": "The fare is 9 euros"}',
    ...                {"note": "The fare is 9 euros"})
    '{"saved":true}'
    """
    result = _json(text) if text.lstrip().startswith(("{", "[")) else None
    if isinstance(result, dict) and True in (result.get("isError"), result.get("is_error")):
        return ""
    arguments_sent = _json(arguments) if isinstance(arguments, str) else dict(arguments)
    if not isinstance(arguments_sent, dict) or not arguments_sent:
        return text
    values = list(_leaves(arguments_sent))
    if isinstance(result, dict | list):
        unechoed = [leaf for leaf in _leaves(result) if leaf not in values]
        if not unechoed:
            return ""
        remaining = _without(result, [leaf for leaf in values if states(leaf[1])])
        if remaining == result:
            return text
        return json.dumps(remaining, ensure_ascii=False, separators=(",", ":"))
    for _, value in values:
        if text.strip() == str(value).strip():
            return ""
        if states(value):
            # Within a sentence the words are the tool's: a document may contain the search terms.
            text = re.sub(_ECHO_PATTERN.format(re.escape(value.strip())), ECHO_MARK, text)
    return text


# An argument after a line start, colon, quotation mark or bracket, up to a matching kind of end.
_ECHO_PATTERN: Final = r"(?:(?<=[:\n\"'“„‘«(])|(?<=: )|^){}(?=$|[\n\"'”“’».!?;)])"


def _json(text: str) -> Any:
    """The JSON value of a text; None where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Key and value of each scalar within a JSON value, without empty ones."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif value is not None and value != "":
        yield key, value


def states(value: Any) -> bool:
    """Whether an argument has enough words to state something."""
    words = value.split() if isinstance(value, str) else []
    return sum(any(map(str.isalpha, word)) for word in words) >= MIN_STATING_WORDS


def _without(value: Any, echoes: Sequence[tuple[str, Any]], key: str = "") -> Any:
    """A JSON value without the echoed leaves."""
    if isinstance(value, dict):
        return {
            name: _without(item, echoes, name)
            for name, item in value.items()
            if (name, item) not in echoes
        }
    if isinstance(value, list):
        return [_without(item, echoes, key) for item in value if (key, item) not in echoes]
    return value


def answer_text(answer: object) -> str:
    """The text of an answer for examination: a structured answer becomes its canonical JSON.

    >>> answer_text({"fare": 9, "city": "Oslo"})
    '{"city":"Oslo","fare":9}'
    """
    if isinstance(answer, str):
        return answer
    if isinstance(answer, BaseModel | Mapping | list | tuple) or (
        is_dataclass(answer) and not isinstance(answer, type)
    ):
        try:
            return canonical(to_jsonable_python(answer)).decode()
        except (ValueError, TypeError, PydanticSerializationError):
            raise RequestError(
                f"answer is {type(answer).__name__} with values that JSON does not have"
            ) from None
    raise RequestError(f"answer is {type(answer).__name__}, wanted a text or a structured answer")


def readable(text: str) -> str:
    """Replace NUL and lone surrogates, which cannot be stored or hashed, with U+FFFD."""
    return _UNREADABLE.sub("\ufffd", text)


_UNREADABLE: Final = re.compile("[\x00\ud800-\udfff]")


def earlier_facts(namespace: Namespace, prior: Sequence[EarlierWindow]) -> list[Fact]:
    """Facts that earlier windows showed and whose text has not changed since."""
    shown = seen_hashes(prior)
    ids = list(shown)[-MAX_EARLIER_FACTS:]
    if not ids:
        return []
    return [fact for fact in namespace.facts(ids) if sha256(fact.content) == shown[fact.fact_id]]


def evidence_vectors(evidence: AnswerEvidence, view: FabricView) -> FloatRows:
    """Unit rows of the passages in their order, shape (passages, dimensions)."""
    stored = [name for name in evidence.ids if name in evidence.whole]
    try:
        rows = view.vectors(stored)
    except StoreError:
        # A fact that can no longer be retrieved counts as a text that is not stored.
        there = {brief.fact_id for brief in view.briefs(stored)}
        if there.issuperset(stored):
            raise
        stored = [name for name in stored if name in there]
        rows = view.vectors(stored)
    if len(stored) == len(evidence.passages):
        return rows
    # A text that is not stored has no vector yet, and an excerpt needs one of its own.
    made = [(name, text) for name, text in evidence.passages if text and name not in stored]
    new = view.embedder.embed_passages([text for _, text in made])
    ids = [*stored, *(name for name, _ in made)]
    row_of = dict(zip(ids, [*rows, *new], strict=True))
    zeros = np.zeros(view.embedder.dimensions, dtype=np.float32)
    return np.stack([row_of.get(name, zeros) for name in evidence.ids])


def named_passages(items: Sequence[PackedFact | Fact | str]) -> list[tuple[str, str]]:
    """Ids and texts of the model's context; plain texts are named `context-1`, `context-2`, …."""
    passages = []
    for number, item in enumerate(items, 1):
        if isinstance(item, str):
            passages.append((f"context-{number}", item))
        elif isinstance(item, Fact | PackedFact):
            passages.append((item.fact_id, item.content))
        else:
            raise RequestError(f"context {number} is {type(item).__name__}, wanted a text or fact")
    return passages
