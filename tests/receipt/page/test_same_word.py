"""The page and `verify` say the same of receipts that a key's holder made wrong on purpose."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations.receipt.canonical import b64, dumps, unb64
from crp_integrations.receipt.signed_statement import IN_TOTO
from crp_integrations.receipt.verify import verify
from tests.receipt.page.conftest import Open
from tests.receipt.page.samples import KEY, handbook

Change = Callable[[dict[str, Any], dict[str, Any]], object]


def _signed(change: Change) -> bytes:
    """The receipt with its statement or its file changed, signed again."""
    file = json.loads(handbook().receipt(redacted=(5,)))
    statement = json.loads(unb64(file["envelope"]["payload"], ""))
    change(statement, file)
    # The package does not write some of what a signer could.
    payload = json.dumps(
        statement, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    ).encode()
    signed = KEY.sign(IN_TOTO, payload).to_json()
    file["envelope"] = {
        **file["envelope"],
        "payload": b64(payload),
        "signatures": signed["signatures"],
    }
    return dumps(file) + b"\n"


def _chain(**new: Any) -> Change:
    return lambda statement, _: statement["predicate"]["chain"].update(new)


def _leaf(number: int, **new: Any) -> Change:
    return lambda statement, _: statement["predicate"]["texts"]["leaves"][number].update(new)


def _text(number: int, value: Any) -> Change:
    return lambda _, file: file["texts"].__setitem__(number, value)


CONTEXT = 19
CHANGES: dict[str, Change] = {
    "nothing": lambda statement, file: None,
    "another time": _chain(timestamp="2030-01-01T00:00:00Z"),
    "first with parents": _chain(window_number=1),
    "no parents": _chain(parents=[]),
    "parents in another order": _chain(parents=["sha256:" + "b2" * 32, "sha256:" + "b1" * 32]),
    "a parent twice": _chain(parents=["sha256:" + "b1" * 32] * 2),
    "window zero": _chain(window_number=0),
    "a key more in the chain": _chain(more=1),
    "a seal of a number": _chain(hmac=7),
    "another type": lambda statement, _: statement.update(
        _type="https://in-toto.io/Statement/v0.1"
    ),
    "another predicate": lambda statement, _: statement.update(
        predicateType="https://example.org/1"
    ),
    "a subject less": lambda statement, _: statement["subject"].pop(),
    "subjects in another order": lambda statement, _: statement["subject"].reverse(),
    "a digest more": lambda statement, _: statement["subject"][0]["digest"].update(sha512="0"),
    "a subject of another leaf": lambda statement, _: statement["subject"][0]["digest"].update(
        sha256=statement["predicate"]["texts"]["leaves"][1]["hash"]
    ),
    "another root": lambda statement, _: statement["predicate"]["texts"].update(root="00" * 32),
    "a leaf less": lambda statement, _: statement["predicate"]["texts"]["leaves"].pop(),
    "leaves in another order": lambda statement, _: statement["predicate"]["texts"][
        "leaves"
    ].reverse(),
    "another hash": _leaf(1, hash="00" * 32),
    "a hash of capitals": _leaf(1, hash="AB" * 32),
    "one fact twice": _leaf(2, fact="009f4b7c2e8a6d1350"),
    "a fact without an id": _leaf(2, fact=""),
    "a name of a fact": _leaf(0, name="fact/1"),
    "follows a word": _leaf(0, follows="no"),
    "quotes what is not there": _leaf(0, of=[99]),
    "parts of what is not there": _leaf(CONTEXT, parts=[99]),
    "parts of itself": _leaf(CONTEXT, parts=[CONTEXT]),
    "a stretch that is too long": _leaf(CONTEXT, parts=[[1, 0, 9999]]),
    "a key beyond the first plane": lambda statement, _: statement["predicate"]["content"].update(
        {"\U0001f600": 1}
    ),
    "a key beyond ASCII": lambda statement, _: statement["predicate"]["content"].update({"é": 1}),
    "a key beyond ASCII, a text beyond the first plane": lambda statement, _: statement[
        "predicate"
    ]["content"].update({"é": "\U0001f600"}),
    "longer than any context": _leaf(CONTEXT, parts=[1] * 400_000),
    "content of a list": lambda statement, _: statement["predicate"].update(content=[]),
    "another text": _text(1, {"salt": b64(bytes(32)), "text": "another"}),
    "another word for left out": _text(1, "removed"),
    "left out": _text(1, "redacted"),
    "erased": _text(7, "erased"),
    "a short salt": _text(1, {"salt": b64(bytes(16)), "text": "another"}),
    "no salt": _text(1, {"text": "another"}),
    "a text less": lambda _, file: file["texts"].pop(),
    "another schema": lambda _, file: file.update(schema="receipt/2"),
    "a key more": lambda _, file: file.update(note="signed by nobody"),
    "a signature more": lambda _, file: None,
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_page_and_verify_say_the_same(show: Open, name: str) -> None:
    data = _signed(CHANGES[name])
    if name == "a signature more":
        file = json.loads(data)
        file["envelope"]["signatures"] *= 2
        data = dumps(file) + b"\n"
    found = verify(data)
    opened = show(data)
    assert opened.state == found.word, (found.place, found.reason, opened.place)
