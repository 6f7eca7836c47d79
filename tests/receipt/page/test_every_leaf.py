"""Each value that a receipt signs is computed again, or stated by the signer and printed so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import EnumMeta
from functools import cache
from hashlib import sha256
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from crp_integrations import vocabulary
from crp_integrations.receipt.canonical import b64, dumps, unb64
from crp_integrations.receipt.predicate import Content
from crp_integrations.receipt.records import write
from crp_integrations.receipt.replay_records import BROKEN, DIFFERS, HOLDS
from crp_integrations.receipt.signed_statement import IN_TOTO
from crp_integrations.receipt.verify import verify
from tests.receipt.page import real
from tests.receipt.page.conftest import Open
from tests.receipt.page.samples import KEY
from tests.receipt.page.test_forgeries import replayed_word
from tests.receipt.relayed import ANSWER, QUESTION, opened
from tests.receipt.test_witnessed_answers import SENT, observe_answer, out_of
from tests.relay.conftest import FACTS

STATED = """
return [...document.querySelectorAll("#stated dt")].map((one) =>
  [one.textContent, one.nextElementSibling.textContent]);
"""
Path = tuple[str | int, ...]
WORDS = [
    member.value
    for kind in vars(vocabulary).values()
    if isinstance(kind, EnumMeta)
    for member in kind
]


def _witnessed() -> bytes:
    """The receipt of an answer that another package asked for."""
    relay, _ = opened()
    answer = observe_answer(relay, ANSWER, [FACTS[0], FACTS[2]], QUESTION, messages=SENT)
    return write(out_of(answer))


BASES = {"judged": lambda: real.session()[-1], "witnessed": _witnessed}


def _values(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each scalar and list of a JSON value, with its path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _values(inner, (*path, name))
        return
    yield path, value
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _values(inner, (*path, number))


def _others(value: Any) -> list[Any]:
    """Other values in its place, the likeliest first."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if value is None:
        return [1, "1", [1], {}]
    if isinstance(value, list):
        return [value[:-1] if value else [1], [*value, *value[:1]]]
    return [f"{value[:-1]}{'1' if value.endswith('0') else '0'}", "x", *WORDS, "x1"]


def _with(statement: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of a statement with one other value."""
    copy: dict[str, Any] = orjson.loads(orjson.dumps(statement))
    part: Any = copy
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return copy


def _changed(statement: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    """A copy of a statement with one other value, and the digest that fits it."""
    copy = _with(statement, path, value)
    rest = {name: part for name, part in copy["predicate"].items() if name != "digest"}
    copy["predicate"]["digest"] = sha256(dumps(rest)).hexdigest()
    return copy


def _is_valid(statement: dict[str, Any], path: Path, value: Any) -> bool:
    try:
        Content.model_validate(_with(statement, path, value)["predicate"]["content"])
    except ValidationError:
        return False
    return True


@cache
def forgeries(name: str) -> dict[str, bytes]:
    """A receipt with one value of each kind of place changed, by the place and the type."""
    file = json.loads(BASES[name]())
    statement = json.loads(unb64(file["envelope"]["payload"], ""))
    made: dict[str, bytes] = {}
    for path, value in _values(statement):
        # Settings and reports have hundreds of values, which are compared as a whole.
        depth = 4 if {"settings", "report"} & {*path} else 9
        kind = ".".join("*" if isinstance(part, int) else part for part in path[:depth])
        kind += f": {type(value).__name__}"
        if kind in made or path == ("predicate", "digest"):
            continue
        others = [other for other in _others(value) if other != value]
        other = next((one for one in others if _is_valid(statement, path, one)), others[0])
        change = _changed(statement, path, other)
        signed = KEY.sign(IN_TOTO, dumps(change)).to_json()
        envelope = {**file["envelope"], "payload": b64(dumps(change))}
        envelope["signatures"] = signed["signatures"]
        made[kind] = dumps({**file, "envelope": envelope, "key": b64(KEY.public)}) + b"\n"
    return made


@pytest.mark.parametrize("name", BASES)
def test_each_value_is_computed_again_or_stated(name: str) -> None:
    base = verify(BASES[name]())
    assert base.word == HOLDS
    for place, data in forgeries(name).items():
        found = verify(data)
        assert found.word in (BROKEN, DIFFERS) or found.stated != base.stated, place
        assert replayed_word(data) == found.word, place


def test_the_page_says_the_word_of_verify_for_each_value(show: Open) -> None:
    """One value of each part and type: strings, numbers, truth values, lists."""
    chosen = {(*place.split(".")[:3], place[-4:]): place for place in forgeries("judged")}
    for place in chosen.values():
        data = forgeries("judged")[place]
        verified, opened = verify(data), show(data)
        assert opened.state == verified.word, (place, opened.place)
        shown = opened.script(STATED)
        assert shown == [list(pair) for pair in verified.stated], place
