"""Receipts of real windows, for tests of what they record."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from crp_integrations import Relay
from crp_integrations.receipt.leaves import Leaf
from crp_integrations.receipt.records import Draft, OmissionReason, Receipt, issue, read, write
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.receipt.made import KEY, SALT_KEY
from tests.receipt.schemas import content_schema
from tests.relay.conftest import FACTS
from tests.relay.conftest import KEY as MASTER
from tests.relay.judges import MEASURED

try:
    from jsonschema import Draft202012Validator
except ImportError:
    _PUBLISHED = None
else:
    _PUBLISHED = Draft202012Validator(content_schema())
MODEL = "any/model"
SESSION = "crp_sess_" + "r" * 16
QUESTION = "When was the Meridian reactor commissioned? What revenue did Northfield Energy report?"
# Of three claims the first is right, the second changed, and the third made up.
ANSWER = (
    "The Meridian reactor was commissioned on 4 March 2019. It delivers 512 megawatts. "
    "The Larkspur dam was sold to Brightwater Holdings for $97 million on 2 June 1987."
)


def opened(*script: Any, **options: Any) -> tuple[Relay, ScriptedModel]:
    """A relay over the usual facts, and the model behind it."""
    model = ScriptedModel(*(script or (ANSWER,)))
    given = {"embedder": HashEmbedder(), "key": MASTER, "clock": NOON, "models": model}
    given |= {"profile": "protocol", **options}
    relay = Relay.open(MemoryStore(), **given)
    relay.fabric.add(list(FACTS))
    return relay, model


def receipt_of(relay: Relay, receipt_id: str) -> Receipt:
    """A receipt as a stranger has it: out of its file."""
    found = relay.receipt(receipt_id)
    assert found is not None
    receipt = read(write(found))
    if _PUBLISHED is not None:
        content = json.loads(receipt.signed.payload)["predicate"]["content"]
        assert [error.message for error in _PUBLISHED.iter_errors(content)] == []
    return receipt


def asked(question: str = QUESTION, *script: Any, **asking: Any) -> Receipt:
    """The receipt of one question."""
    # The document's arithmetic asks engines, and so leaves signals to replay.
    options = {"dpe": MEASURED, **asking.pop("options", {})}
    relay, _ = opened(*script, **options)
    answer = relay.ask(question, **{"model": MODEL, "session_id": SESSION, **asking})
    return receipt_of(relay, answer.receipt_id)


def changed(
    receipt: Receipt,
    change: Callable[[dict[str, Any]], None] = lambda content: None,
    texts: Mapping[str, str] | None = None,
) -> Receipt:
    """A receipt that says something else, signed anew by somebody who has a key.

    Args:
        change: what is done to its content.
        texts: other texts by the names of their leaves.
    """
    content = _copied(receipt.content)
    change(content)
    leaves = []
    for number, leaf in enumerate(receipt.leaves):
        text = (texts or {}).get(leaf.name)
        parts = leaf.parts if text is None else ()
        if text is None and not parts:
            text = receipt.text(number) or ""
        leaves.append(Leaf(leaf.name, text or "", leaf.fact_id, "", leaf.of, leaf.follows, parts))
    made = issue(Draft(content, tuple(leaves)), receipt.chain, KEY, SALT_KEY)
    gone = {n: one for n, one in enumerate(receipt.texts) if isinstance(one, OmissionReason)}
    return read(write(made.without(gone) if gone else made))


def renamed(receipt: Receipt, **chain: Any) -> Receipt:
    """The same receipt at another place of the chain."""
    leaves = tuple(
        Leaf(
            one.name,
            "" if one.parts else receipt.text(n) or "",
            one.fact_id,
            "",
            one.of,
            one.follows,
            one.parts,
        )
        for n, one in enumerate(receipt.leaves)
    )
    draft = Draft(receipt.content, leaves)
    return read(write(issue(draft, replace(receipt.chain, **chain), KEY, SALT_KEY)))


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, (list, tuple)) else value
