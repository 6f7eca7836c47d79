"""Golden files: what a model saw, stored next to the tests, for comparison with a later run.

Ids, scores and times are not compared, as they change with folders and clocks; the text that goes
to the model must be equal to the character.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final, TypeAlias

from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import ConfigError, ReceiptBroken, RequestError
from crp_integrations.receipt.reconstruction import content_of
from crp_integrations.receipt.records import Receipt, read
from crp_integrations.receipt.records import write as file_of
from crp_integrations.relay.records import Answer

SCHEMA: Final = "golden-context/1"
RECEIPT, CONTEXT = ".receipt.json", ".context.json"
# Types that can be compared; bytes and paths are those of a receipt.
Recorded: TypeAlias = Answer | Envelope | Receipt | bytes | Path | str


@dataclass(frozen=True, slots=True)
class SeenContext:
    """What a model saw.

    Attributes:
        prompt: role and text of each message; empty if only the context is known.
        figures: names and values, such as the token count, that are reported but not compared.
    """

    question: str
    context: str
    prompt: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str], ...]


def read_context(recorded: Recorded) -> SeenContext:
    """Extract what the model saw."""
    recorded = _opened(recorded)
    if isinstance(recorded, Receipt):
        return _of_receipt(recorded)
    if isinstance(recorded, Answer):
        recorded = recorded.envelope
    figures = (
        ("facts", str(recorded.total_facts_included)),
        ("tokens", f"{recorded.token_count} of {recorded.token_budget}"),
        ("tier", recorded.quality_tier.value),
    )
    return SeenContext(recorded.query, recorded.text, (), figures)


def write(recorded: Recorded, folder: Path, name: str) -> list[Path]:
    """Write a golden and return its path; an equal one is not rewritten."""
    recorded = _opened(recorded)
    path = folder / (name + (RECEIPT if isinstance(recorded, Receipt) else CONTEXT))
    now = read_context(recorded)
    if path.is_file() and not _changes(_read(path), now):
        return []
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(recorded, Receipt):
        path.write_bytes(file_of(recorded))
    else:
        value = {
            "schema": SCHEMA,
            "question": now.question,
            "context": now.context.split("\n"),
            **dict(now.figures),
        }
        path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return [path]


def compare(recorded: Recorded, folder: Path, name: str) -> str:
    """Describe how what a model would see differs from the golden; "" if it does not."""
    recorded = _opened(recorded)
    endings = (RECEIPT, CONTEXT) if isinstance(recorded, Receipt) else (CONTEXT, RECEIPT)
    paths = (folder / (name + ending) for ending in endings)
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return f"there is no golden {name!r} in {folder}; write it with: pytest --crp-update"
    before, now = _read(path), read_context(recorded)
    changes = _changes(before, now)
    if not changes:
        return ""
    differences = [
        f"{label}: {old} before, {new} now"
        for (label, old), (_, new) in zip(before.figures, now.figures, strict=False)
        if old != new
    ]
    head = f"the model would see something else than in {path}:"
    return "\n".join([head, *changes, *differences, "accept it with: pytest --crp-update"])


def _opened(recorded: Recorded) -> Answer | Envelope | Receipt:
    if isinstance(recorded, str | Path):
        try:
            recorded = Path(recorded).read_bytes()
        except (OSError, ValueError) as error:
            raise ConfigError(f"receipt {str(recorded)!r:.200} cannot be read") from error
    if isinstance(recorded, bytes):
        return read(recorded)
    if isinstance(recorded, Answer | Envelope | Receipt):
        return recorded
    raise RequestError(
        f"{type(recorded).__name__} cannot be compared; give an answer, an envelope or a receipt"
    )


def _of_receipt(receipt: Receipt) -> SeenContext:
    content_of(receipt)
    content = receipt.content
    calls: Sequence[Any] = content.get("calls") or ()
    prompt = [
        _message_text(receipt, message) for message in (calls[0]["messages"] if calls else ())
    ]
    tools = content["request"].get("tools")
    if prompt and tools is not None:
        told_of = json.loads(_text(receipt, tools))
        prompt.append(("tools", json.dumps(told_of, indent=1, ensure_ascii=False)))
    envelope = content.get("envelope")
    figures = (
        ()
        if envelope is None
        else (
            ("facts", str(len(envelope["facts"]))),
            ("tokens", f"{envelope['token_count']} of {envelope['token_budget']}"),
            ("tier", str(envelope["quality_tier"])),
        )
    )
    return SeenContext(
        _text(receipt, receipt.number("request")),
        _text(receipt, receipt.number("context")),
        tuple(prompt),
        figures,
    )


def _message_text(receipt: Receipt, message: Mapping[str, Any]) -> tuple[str, str]:
    """Role and text of a message; its tool calls without ids, as these always differ."""
    frame = json.loads(_text(receipt, message["frame"])) if "frame" in message else {}
    calls = [f"{call['name']}({call['arguments']})" for call in frame.get("tool_calls", ())]
    return str(message["role"]), "\n".join([_text(receipt, message["leaf"]), *calls])


def _text(receipt: Receipt, number: int) -> str:
    text = receipt.text(number)
    if text is None:
        name = receipt.leaves[number].name
        raise RequestError(f"the receipt lacks its text {name!r:.60}, so it cannot be compared")
    return text


def _read(path: Path) -> SeenContext:
    """Read a golden."""
    if path.name.endswith(RECEIPT):
        try:
            return read_context(path)
        except ReceiptBroken as error:
            message = f"golden {path} is damaged ({error}); write it with --crp-update"
            raise ConfigError(message) from error
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if value["schema"] != SCHEMA:
            raise ConfigError(f"golden {path} is {value['schema']!r:.40}, wanted {SCHEMA!r}")
        figures = tuple((name, str(value[name])) for name in ("facts", "tokens", "tier"))
        return SeenContext(str(value["question"]), "\n".join(value["context"]), (), figures)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"golden {path} cannot be read; write it with --crp-update") from error


def _changes(before: SeenContext, now: SeenContext) -> list[str]:
    """Lines that describe the differences, limited to the parts that both have."""
    lines = [*_differing("question", before.question, now.question)]
    if not before.prompt or not now.prompt:
        return [*lines, *_differing("context", before.context, now.context)]
    if [role for role, _ in before.prompt] != [role for role, _ in now.prompt]:
        lines.append(
            f"messages: {', '.join(role for role, _ in before.prompt)} before, "
            f"{', '.join(role for role, _ in now.prompt)} now"
        )
    for number, ((role, old), (_, new)) in enumerate(
        zip(before.prompt, now.prompt, strict=False), start=1
    ):
        if (role, old) != ("user", before.question) or new != now.question:
            lines += _differing(f"message {number}, {role}", old, new)
    return lines


def _differing(what: str, before: str, now: str) -> Iterator[str]:
    if before == now:
        return
    yield f"{what}:"
    lines = unified_diff(before.split("\n"), now.split("\n"), "golden", "now", lineterm="", n=2)
    for line in lines:
        yield f"  {line}"
