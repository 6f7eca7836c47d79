"""`verify`, `replay` and the page say one word of a real receipt that was changed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import pytest

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import b64, dumps, unb64
from crp_integrations.receipt.leaves import composed, leaf_hash
from crp_integrations.receipt.merkle import Tree
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.redaction import redact
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import BROKEN, DIFFERS, HOLDS, NOT_RECOMPUTED
from crp_integrations.receipt.signed_statement import IN_TOTO
from crp_integrations.receipt.verify import verify
from tests.receipt.page import real
from tests.receipt.page.conftest import Open
from tests.receipt.page.samples import KEY

Change = Callable[[dict[str, Any], dict[str, Any]], object]


@cache
def _base() -> bytes:
    """The receipt of a judged answer with a wrong number, packed from 14 candidates."""
    return real.session()[-1]


def _opened() -> tuple[dict[str, Any], dict[str, Any]]:
    file = json.loads(_base())
    return file, json.loads(unb64(file["envelope"]["payload"], ""))


def signed(change: Change, *, careful: bool = False) -> bytes:
    """The receipt with its statement changed and signed again; a careful signer fits the digest."""
    file, statement = _opened()
    change(statement["predicate"], file)
    _hash_again(statement, file)
    return _signed_again(statement, file, careful=careful)


def _signed_again(statement: dict[str, Any], file: dict[str, Any], *, careful: bool) -> bytes:
    if careful:
        rest = {name: part for name, part in statement["predicate"].items() if name != "digest"}
        statement["predicate"]["digest"] = sha256(dumps(rest)).hexdigest()
    made = KEY.sign(IN_TOTO, dumps(statement)).to_json()
    file["envelope"] |= {"payload": b64(dumps(statement)), "signatures": made["signatures"]}
    return dumps({**file, "key": b64(KEY.public)}) + b"\n"


def _hash_again(statement: dict[str, Any], file: dict[str, Any]) -> None:
    """Make leaves, root and subjects fit the texts of the file."""
    listed = statement["predicate"]["texts"]
    own = [text.get("text") if isinstance(text, dict) else None for text in file["texts"]]
    for number, leaf in enumerate(listed["leaves"]):
        parts = [tuple(part) if isinstance(part, list) else part for part in leaf.get("parts", ())]
        text = composed(parts, own.__getitem__) if parts else own[number]
        if text is not None:
            salt = unb64(file["texts"][number]["salt"], "")
            leaf["hash"] = leaf_hash(salt, text).hex()
    leaves = listed["leaves"]
    listed["root"] = Tree(bytes.fromhex(leaf["hash"]) for leaf in leaves).root.hex()
    hashes = {leaf.get("name"): leaf["hash"] for leaf in leaves}
    for subject in statement["subject"]:
        subject["digest"]["sha256"] = hashes[subject["name"]]


def _number(name: str) -> int:
    return next(n for n, leaf in enumerate(read(_base()).leaves) if leaf.name.startswith(name))


def _text(name: str, old: str, new: str) -> Change:
    """Another text of a leaf."""

    def change(_: Any, file: dict[str, Any]) -> None:
        leaves = read(_base()).leaves
        texts = [
            text
            for leaf, text in zip(leaves, file["texts"], strict=True)
            if leaf.name.startswith(name) and old in text["text"]
        ]
        texts[0]["text"] = texts[0]["text"].replace(old, new)

    return change


def _swapped(_: Any, file: dict[str, Any]) -> None:
    texts = file["texts"]
    texts[0], texts[1] = texts[1], texts[0]


def _content(*path: Any, **values: Any) -> Change:
    """Other values of a part of the content."""

    def change(predicate: dict[str, Any], _: Any) -> None:
        part = predicate["content"]
        for name in path:
            part = part[name]
        assert all(part[name] != value for name, value in values.items())
        part.update(values)

    return change


def _chain(**values: str) -> Change:
    return lambda predicate, _: predicate["chain"].update(values)


def _call(**values: Any) -> Change:
    return _content("examined", "judged", "calls", 0, **values)


def _all_supported(predicate: dict[str, Any], _: Any) -> None:
    report = predicate["content"]["report"]
    report["risk_level"] = "LOW"
    for claim in report["claims"]:
        claim["status"] = "SUPPORTED"


def _all_times(predicate: dict[str, Any], _: Any) -> None:
    predicate["chain"]["timestamp"] = predicate["content"]["fit"]["now"] = "2030-01-01T00:00:00Z"


def _models(predicate: dict[str, Any], _: Any) -> None:
    predicate["content"]["model"].update(asked="other", answered="other")
    predicate["content"]["calls"][0]["model"] = "other"


def _without_last_candidate(predicate: dict[str, Any], _: Any) -> None:
    content = predicate["content"]
    last = len(content["candidates"]) - 1
    content["candidates"].pop()
    content["envelope"]["dropped"] = [
        drop for drop in content["envelope"]["dropped"] if drop["at"] != last
    ]


def _unjudged(predicate: dict[str, Any], _: Any) -> None:
    predicate["content"]["examined"]["judged"] = None


def _unexamined(predicate: dict[str, Any], _: Any) -> None:
    predicate["content"]["examined"] = None


def _nothing_examined(predicate: dict[str, Any], _: Any) -> None:
    content = predicate["content"]
    content.update(examined=None, report={})
    content["policy"].update(judgement=None, reported=None, tier=None, decision="", terms=None)


def _system_message(predicate: dict[str, Any], file: dict[str, Any]) -> None:
    leaf = predicate["texts"]["leaves"][_number("call/1/1")]
    leaf["parts"][0] = "Say that all is well. " + leaf["parts"][0]


def _reordered(predicate: dict[str, Any], _: Any) -> None:
    facts = predicate["content"]["envelope"]["facts"]
    facts[0]["at"], facts[1]["at"] = facts[1]["at"], facts[0]["at"]


def _salted(_: Any, file: dict[str, Any]) -> None:
    file["texts"][0]["salt"] = b64(bytes(32))


ZERO = "sha256:" + "00" * 32
# What a holder of a key changes in what it signs.
SIGNED: dict[str, Change] = {
    "answer": _text("answer", "eight", "nine"),
    "fact": _text("fact/", "posted for", "hosted for"),
    "judge reply": _text("judge/", "CONTRADICTED", "SUPPORTED"),
    "question": _text("request", "How long", "How soon"),
    "facts' texts": _swapped,
    "salt": _salted,
    "status": _content("report", "claims", 1, status="SUPPORTED"),
    "level": _content("report", risk_level="LOW"),
    "all statuses and level": _all_supported,
    "facts' order": _reordered,
    "model that answered": _content("model", answered="other"),
    "model everywhere": _models,
    "time": _chain(timestamp="2030-01-01T00:00:00Z"),
    "all times": _all_times,
    "policy halts": _content("policy", text="halt-on HIGH"),
    "policy warns": _content("policy", text="warn-on LOW"),
    "judge's model": _content("examined", "judged", model="other"),
    "judge's time and tokens": _call(milliseconds=77, prompt_tokens=77),
    "session": _chain(session_id="crp_sess_other"),
    "hmac": _chain(hmac="sha256:" + "11" * 32),
    "outcome": _chain(outcome="halted"),
    "source of a fact": _content("candidates", 0, source="src_other"),
    "score": _content("envelope", "facts", 1, composite=1),
    "version": _content("package", version="9.9"),
    "settings": _content("settings", digest=ZERO),
    "name of the judge's prompt": _content("examined", "judged", prompt="other@1"),
    "hash of the judge's prompt": _call(prompt_hash="00" * 32),
    "state hash": _text("seal", '"state_hash":"sha256:', '"state_hash":"sha256:0'),
    "system message": _system_message,
    "dropped record": lambda predicate, _: predicate["content"]["envelope"]["dropped"].pop(),
    "candidate": _without_last_candidate,
    "claimed judge": _unjudged,
    "claims that nobody examined": _unexamined,
    "no examination": _nothing_examined,
    "reply": _call(leaf=None),
    "temperature": lambda predicate, _: predicate["content"]["request"].update(temperature="1.5"),
}
# What the page does not compute, and says so: there it holds if the signer also fits the digest.
STATED = {
    "all times", "candidate", "hmac", "judge's time and tokens", "model everywhere",
    "model that answered", "name of the judge's prompt", "salt", "score", "session", "settings",
    "source of a fact", "state hash", "temperature", "time", "version",
}  # fmt: skip


def _file(change: Callable[[bytes], bytes]) -> bytes:
    made = change(_base())
    assert made != _base()
    return made


def _plain(name: str, old: str, new: str) -> bytes:
    file, _ = _opened()
    _text(name, old, new)({}, file)
    return dumps(file) + b"\n"


def _erased(name: str) -> bytes:
    file, _ = _opened()
    file["texts"][_number(name)] = "erased"
    return dumps(file) + b"\n"


def _payload(change: Change) -> bytes:
    file, statement = _opened()
    change(statement["predicate"], file)
    file["envelope"]["payload"] = b64(dumps(statement))
    return dumps(file) + b"\n"


def _loose_base64(data: bytes) -> bytes:
    file = json.loads(data)
    sig = file["envelope"]["signatures"][0]["sig"]
    loose = sig[:-3] + chr(ord(sig[-3]) + 1) + sig[-2:]
    assert base64.b64decode(loose) == base64.b64decode(sig)
    file["envelope"]["signatures"][0]["sig"] = loose
    return dumps(file) + b"\n"


def _shared() -> bytes:
    receipt = read(_base())
    return write(redact(receipt, facts=[receipt.leaves[0].fact_id]))


# What anybody changes in a file, and receipts that are whole.
FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nothing": (HOLDS, _base),
    "signed by another key": (HOLDS, lambda: signed(lambda *_: None)),
    "another valid receipt": (HOLDS, lambda: real.session()[0]),
    "without a judge": (HOLDS, lambda: real.session(judge=None)[-1]),
    "answer, not signed": (BROKEN, lambda: _plain("answer", "eight", "nine")),
    "fact, not signed": (BROKEN, lambda: _plain("fact/", "posted for", "hosted for")),
    "reply, not signed": (BROKEN, lambda: _plain("judge/", "CONTRADICTED", "SUPPORTED")),
    "question, not signed": (BROKEN, lambda: _plain("request", "How long", "How soon")),
    "level, not signed": (BROKEN, lambda: _payload(SIGNED["level"])),
    "salt, not signed": (BROKEN, lambda: _payload(_salted)),
    "swapped, not signed": (BROKEN, lambda: _payload(_swapped)),
    "truncated": (BROKEN, lambda: _file(lambda data: data[:-500])),
    "pretty": (BROKEN, lambda: _file(lambda data: json.dumps(json.loads(data), indent=1).encode())),
    "base64 in another form": (BROKEN, lambda: _file(_loose_base64)),
    "word erased on a shown fact": (BROKEN, lambda: _erased("fact/969e")),
    "a fact left out and all that quotes it": (NOT_RECOMPUTED, _shared),
    "a reply left out": (NOT_RECOMPUTED, lambda: _erased("judge/")),
}  # fmt: skip


def replayed_word(data: bytes) -> str:
    """The word of a replay, which verifies the form first."""
    if not verify(data, contents=False).ok:
        return BROKEN
    try:
        return replay(read(data)).word
    except ReceiptBroken:
        return DIFFERS


@pytest.mark.parametrize("name", FILES)
def test_of_a_changed_file(show: Open, name: str) -> None:
    word, make = FILES[name]
    data = make()
    opened = show(data)
    assert (verify(data).word, replayed_word(data), opened.state) == (word,) * 3, opened.place


@pytest.mark.parametrize("name", SIGNED)
def test_of_what_was_signed_again(show: Open, name: str) -> None:
    data = signed(SIGNED[name])
    opened = show(data)
    words = verify(data).word, replayed_word(data), opened.state
    assert words == (DIFFERS,) * 3, opened.place


@pytest.mark.parametrize("name", sorted(SIGNED.keys() - STATED))
def test_of_what_a_careful_signer_changes(show: Open, name: str) -> None:
    """The digest fits, so that the word rests on what is computed again."""
    data = signed(SIGNED[name], careful=True)
    opened = show(data)
    assert HOLDS not in (verify(data).word, replayed_word(data), opened.state), opened.place
