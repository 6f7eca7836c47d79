"""The texts of a receipt as salted leaves of a Merkle tree (`leaf@1`).

A leaf is 32 bytes of salt and the text in UTF-8. Its hash tells nothing of the text to who has not
the salt, however few texts there could be; so a text can be left out of a copy, and the tree still
verifies. A composed leaf has no text of its own: it is put together from others and from the frame
between them, so that what was shown of a fact stands in a receipt once, and is gone with its leaf.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256, shake_256
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from crp_integrations.envelope.prompt import ELLIPSIS, SEPARATOR
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.canonical import LARGEST, fields, hex_of, text_of, whole
from crp_integrations.seals import derive_key

SALT_BYTES: Final = 32
SALT_INFO: Final = b"crp-receipt-salt-v1"
FACT: Final = "fact/"
# Characters of a composed text, and of all of a receipt: parts can be named as often as one likes.
LONGEST: Final = 50_000_000
LONGEST_TOGETHER: Final = 10 * LONGEST
_OF_FACT = frozenset({"fact", "hash"})
_OF_TEXT = frozenset({"follows", "hash", "name", "of", "parts"})

# A literal; a leaf as a whole; or a stretch of one, from and to a character.
Part: TypeAlias = str | int | tuple[int, int, int]


# Tuples, as a receipt has hundreds of leaves: they are made in a third of the time.
class Leaf(NamedTuple):
    """A text that a receipt is to hold.

    Attributes:
        name: what it is, once in a receipt: `request`, `context`, `answer`, `fact/<id>`, ….
        text: of a composed leaf what it is put together to, or empty.
        fact_id, source_id: of a fact's text; else empty. The source is not signed.
        of: numbers of the leaves of facts that the text may quote.
        follows: whether it may repeat what earlier windows said.
        parts: what a composed leaf is put together from; empty for any other. No leaf in
            it is composed itself.
    """

    name: str
    text: str = ""
    fact_id: str = ""
    source_id: str = ""
    of: tuple[int, ...] = ()
    follows: bool = False
    parts: tuple[Part, ...] = ()


class LeafEntry(NamedTuple):
    """A leaf as it is signed: everything but its text and its salt.

    Attributes:
        hash: of the leaf, 32 bytes.
    """

    name: str
    hash: bytes
    fact_id: str = ""
    of: tuple[int, ...] = ()
    follows: bool = False
    parts: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The leaf as a JSON object; tuples are arrays."""
        if self.fact_id:
            return {"fact": self.fact_id, "hash": self.hash.hex()}
        return {
            "follows": self.follows,
            "hash": self.hash.hex(),
            "name": self.name,
            "of": self.of,
            "parts": self.parts,
        }

    @classmethod
    def from_json(cls, value: Any, count: int, place: str) -> LeafEntry:
        """Read a leaf."""
        if isinstance(value, dict) and "fact" in value:
            members = fields(value, _OF_FACT, place)
            fact_id = text_of(members["fact"], f"{place}.fact")
            if not fact_id:
                raise ReceiptBroken(f"{place}.fact", "is empty")
            return cls(FACT + fact_id, hex_of(members["hash"], f"{place}.hash"), fact_id)
        members = fields(value, _OF_TEXT, place)
        name = text_of(members["name"], f"{place}.name")
        if not name or name.startswith(FACT):
            raise ReceiptBroken(f"{place}.name", "is empty or that of a fact")
        if not isinstance(members["follows"], bool):
            raise ReceiptBroken(f"{place}.follows", "neither true nor false")
        return cls(
            name,
            hex_of(members["hash"], f"{place}.hash"),
            "",
            tuple([_number(n, count, f"{place}.of") for n in _list(members["of"], f"{place}.of")]),
            members["follows"],
            tuple(
                [
                    _part(part, count, f"{place}.parts[{at}]")
                    for at, part in enumerate(_list(members["parts"], f"{place}.parts"))
                ]
            ),
        )


def entries_of(listed: Any, place: str) -> tuple[LeafEntry, ...]:
    """Read the leaves of a receipt."""
    values = _list(listed, place)
    entries = [
        LeafEntry.from_json(value, len(values), f"{place}[{number}]")
        for number, value in enumerate(values)
    ]
    check_parts(entries, place)
    return tuple(entries)


# Deriving one takes as long as hashing fifty leaves.
@lru_cache(maxsize=64)
def salt_key(master: bytes, tenant: str) -> bytes:
    """The key that the salts of a tenant's receipts are made with, 32 bytes."""
    return derive_key(master, salt=tenant, info=SALT_INFO)


def salts(key: bytes, scope: str, count: int) -> list[bytes]:
    """The salts of a receipt's leaves: nobody without the key can tell or compare them.

    An HMAC of the scope gives the receipt's secret, and SHAKE256 of that the salts one after the
    other (FIPS 202); a call of a hash for each took as long as hashing the leaves.
    """
    secret = hmac.digest(key, scope.encode(), "sha256")
    size = SALT_BYTES * count
    stream = shake_256(secret).digest(size)
    return [stream[at : at + SALT_BYTES] for at in range(0, size, SALT_BYTES)]


def leaf_hashes(salted: Iterable[tuple[bytes, str]]) -> list[bytes]:
    """The hashes of leaves, each of a salt and a text."""
    return [sha256(b"\x00" + salt + text.encode()).digest() for salt, text in salted]


def leaf_hash(salt: bytes, text: str) -> bytes:
    """The hash of a text's leaf (RFC 9162 §2.1.1 over salt and text)."""
    return leaf_hashes([(salt, text)])[0]


def composed(
    parts: Sequence[Part], text: Callable[[int], str | None], most: int = LONGEST
) -> str | None:
    """The text of a composed leaf."""
    most = min(most, LONGEST)
    pieces: list[str] = []
    length = 0
    for part in parts:
        piece: str | None
        if isinstance(part, str):
            piece = part
        elif isinstance(part, int):
            piece = text(part)
        else:
            number, start, end = part
            leaf_text = text(number)
            piece = None if leaf_text is None or end > len(leaf_text) else leaf_text[start:end]
        if piece is None:
            return None
        pieces.append(piece)
        length += len(piece)
        if length > most:
            return None
    return "".join(pieces)


def quoted(parts: Sequence[Part]) -> frozenset[int]:
    """Numbers of the leaves that a composed one is put together from."""
    return frozenset(
        [part if isinstance(part, int) else part[0] for part in parts if not isinstance(part, str)]
    )


def check_parts(leaves: Sequence[Leaf | LeafEntry], place: str) -> None:
    """Refuse leaves of one name, those of facts that are named otherwise, and nested ones."""
    names: set[str] = set()
    composite = {number for number, leaf in enumerate(leaves) if leaf.parts}
    for number, leaf in enumerate(leaves):
        if leaf.name in names:
            raise ReceiptBroken(f"{place}[{number}]", "has another leaf's name")
        names.add(leaf.name)
        if leaf.name.startswith(FACT) != bool(leaf.fact_id):
            raise ReceiptBroken(f"{place}[{number}]", "is of a fact by its name or its id alone")
        if leaf.parts and not composite.isdisjoint(quoted(leaf.parts)):
            raise ReceiptBroken(f"{place}[{number}].parts", "names a leaf that has parts itself")


def _list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise ReceiptBroken(place, "no list")
    return value


def _number(value: Any, count: int, place: str) -> int:
    number = whole(value, place)
    if number >= count:
        raise ReceiptBroken(place, f"leaf {number} is not one of {count}")
    return number


def _part(value: Any, count: int, place: str) -> Part:
    """A literal, a leaf, or a stretch of one."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return _number(value, count, place)
    if len(value) != 3:
        raise ReceiptBroken(place, "no stretch of a leaf")
    start, end = whole(value[1], place), whole(value[2], place)
    if start > end:
        raise ReceiptBroken(place, "ends before it begins")
    return _number(value[0], count, place), start, end


_encoded = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_SURROGATE = re.compile("[\ud800-\udfff]")


class TextLeaves:
    """Leaves, by number.

    Attributes:
        of: numbers of the facts that the model was shown.
    """

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.of: tuple[int, ...] = ()
        self._facts: dict[str, int] = {}

    def fact(self, fact_id: str, text: str, source_id: str = "") -> int:
        """The leaf of a fact."""
        known = self._facts.get(fact_id)
        if known is None:
            known = self._facts[fact_id] = len(self.leaves)
            text = text if text.isascii() else _written(text)
            self.leaves.append(Leaf(FACT + fact_id, text, fact_id, source_id))
        return known

    def add(
        self,
        name: str,
        text: str,
        *,
        of: Sequence[int] = (),
        follows: bool = False,
        parts: Sequence[Part] = (),
    ) -> int:
        """A further leaf."""
        text = text if text.isascii() else _written(text)
        if parts and self.composed(parts) == text:
            leaf = Leaf(name, text, of=tuple(of), follows=follows, parts=tuple(parts))
        else:
            leaf = Leaf(name, text, of=tuple(of), follows=follows)
        self.leaves.append(leaf)
        return len(self.leaves) - 1

    def number(self, name: str) -> int:
        """The number of a leaf by its name, the one added last."""
        return next(n for n in reversed(range(len(self.leaves))) if self.leaves[n].name == name)

    def named(self, text: str, prefix: str) -> str:
        """The name of a leaf of this text whose name begins so; empty for none."""
        matching = (leaf for leaf in self.leaves if leaf.text == text)
        return next((leaf.name for leaf in matching if leaf.name.startswith(prefix)), "")

    def composed(self, parts: Sequence[Part]) -> str:
        """The text of parts."""
        leaves = self.leaves
        return "".join(
            [
                part
                if isinstance(part, str)
                else leaves[part].text
                if isinstance(part, int)
                else leaves[part[0]].text[part[1] : part[2]]
                for part in parts
            ]
        )

    def rendered(self, envelope: Envelope) -> tuple[Part, ...]:
        """The context (`render@1`) as parts: what is shown of each fact of an envelope."""
        leaves, known = self.leaves, self._facts
        parts: list[Part] = []
        for number, fact in enumerate(envelope.facts, start=1):
            parts.append(_marker(number))
            leaf = known[fact.fact_id]
            if leaves[leaf].text == fact.content:
                parts.append(leaf)
            else:
                parts += stretches(leaf, fact.spans)
        return tuple(parts)


def rendered(shown: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    """The context (`render@1`) as parts, of what is shown of each fact."""
    parts: list[Part] = []
    for number, pieces in enumerate(shown, start=1):
        parts.append(_marker(number))
        parts += pieces
    return tuple(parts)


def stretches(leaf: int, spans: Sequence[tuple[int, int]]) -> list[Part]:
    """A text as parts of a fact's leaf."""
    parts: list[Part] = []
    for start, end in spans:
        parts += [ELLIPSIS, (leaf, start, end)] if parts else [(leaf, start, end)]
    return parts


@lru_cache(maxsize=1024)
def _marker(number: int) -> str:
    """The text in front of a fact in the context."""
    return f"[{number}] " if number == 1 else f"{SEPARATOR}[{number}] "


def _written(text: str) -> str:
    """A text that can be written as UTF-8."""
    return _SURROGATE.sub("\ufffd", text)


def small(value: int | None) -> int | None:
    """A limit that canonical JSON has a number for; a higher one limits nothing either."""
    return None if value is None else max(-LARGEST, min(LARGEST, value))


def as_json(value: Any) -> str:
    """A text of its own in JSON; it may hold floats, which the content may not."""
    return _encoded(value)


def texts_as_json(value: Mapping[str, str] | Sequence[str]) -> str:
    """The same of texts alone, in a fraction of the time."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        # Half of a surrogate pair.
        return _encoded(value)
