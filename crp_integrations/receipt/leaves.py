"""The texts of a receipt as salted leaves of a Merkle tree (`leaf@1`).

A leaf is 32 bytes of salt and the text in UTF-8. Without the salt, its hash reveals nothing about
the text, even if there are few possible texts; so a copy can leave a text out and the tree still
verifies. A composed leaf has no text of its own: it is joined from other leaves and literals, so
that the text of a fact is in a receipt once, and removing its leaf removes it everywhere.
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
from crp_integrations.receipt.canonical import LARGEST, fields, hex_of, items, seen, text_of, whole
from crp_integrations.seals import derive_key

SALT_BYTES: Final = 32
SALT_INFO: Final = b"crp-receipt-salt-v1"
SUBJECT_INFO: Final = b"crp-receipt-subject-v1"
SUBJECT_PREFIX: Final = "crp_subj_"
FACT: Final = "fact/"
COMMUNITIES: Final = "communities"
# Maximum characters of a composed text, and of all of a receipt: parts may repeat without limit.
LONGEST: Final = 50_000_000
LONGEST_TOGETHER: Final = 10 * LONGEST
_OF_FACT = frozenset({"fact", "hash"})
_OF_TEXT = frozenset({"follows", "hash", "name", "of", "parts"})

# A literal; the number of a whole leaf; or a stretch of a leaf: number, start and end character.
Part: TypeAlias = str | int | tuple[int, int, int]


# Named tuples, as a receipt has hundreds of leaves: creating one takes a third of the time.
class Leaf(NamedTuple):
    """A text of a receipt before signing.

    Attributes:
        name: unique in a receipt: `request`, `context`, `answer`, `fact/<id>`, ….
        text: the text; for a composed leaf the joined text, or empty.
        fact_id, source_id: ids of the fact and its source; else empty. The source is not signed.
        of: numbers of the leaves of facts that the text may quote.
        follows: whether it may repeat texts of earlier windows.
        parts: parts of a composed leaf, none of them composed itself; empty for any other leaf.
    """

    name: str
    text: str = ""
    fact_id: str = ""
    source_id: str = ""
    of: tuple[int, ...] = ()
    follows: bool = False
    parts: tuple[Part, ...] = ()


class LeafEntry(NamedTuple):
    """A leaf as it is signed: everything except its text and its salt.

    Attributes:
        hash: hash of the leaf, 32 bytes.
    """

    name: str
    hash: bytes
    fact_id: str = ""
    of: tuple[int, ...] = ()
    follows: bool = False
    parts: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The entry as a JSON object; tuples become arrays."""
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
        """Read and check the entry of one of `count` leaves."""
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
            reason = f"is {seen(members['follows'])}, wanted true or false"
            raise ReceiptBroken(f"{place}.follows", reason)
        return cls(
            name,
            hex_of(members["hash"], f"{place}.hash"),
            "",
            tuple([_number(n, count, f"{place}.of") for n in items(members["of"], f"{place}.of")]),
            members["follows"],
            tuple(
                [
                    _part(part, count, f"{place}.parts[{at}]")
                    for at, part in enumerate(items(members["parts"], f"{place}.parts"))
                ]
            ),
        )


def entries_of(listed: Any, place: str) -> tuple[LeafEntry, ...]:
    """Read and check the leaf entries of a receipt."""
    values = items(listed, place)
    entries = [
        LeafEntry.from_json(value, len(values), f"{place}[{number}]")
        for number, value in enumerate(values)
    ]
    check_parts(entries, place)
    return tuple(entries)


# Cached, as a derivation takes as long as hashing fifty leaves.
@lru_cache(maxsize=64)
def salt_key(master: bytes, tenant: str) -> bytes:
    """The key from which the salts of a tenant's receipts are derived, 32 bytes."""
    return derive_key(master, salt=tenant, info=SALT_INFO)


def pseudonym(master: bytes, tenant: str, subject: str) -> str:
    """The name of a tenant's subject in receipts: equal for equal subjects, as long as a key is."""
    key = derive_key(master, salt=tenant, info=SUBJECT_INFO)
    return SUBJECT_PREFIX + hmac.digest(key, subject.encode(), "sha256").hex()[:24]


def salts(key: bytes, scope: str, count: int) -> list[bytes]:
    """The salts of a receipt's leaves; without the key no one can compute them.

    An HMAC of the scope gives the receipt's secret, which SHAKE256 (FIPS 202) expands to all salts
    at once; one hash call per salt took as long as hashing the leaves.
    """
    secret = hmac.digest(key, scope.encode(), "sha256")
    size = SALT_BYTES * count
    stream = shake_256(secret).digest(size)
    return [stream[at : at + SALT_BYTES] for at in range(0, size, SALT_BYTES)]


def leaf_hashes(salted: Iterable[tuple[bytes, str]]) -> list[bytes]:
    """Hash leaves, each given as salt and text."""
    return [sha256(b"\x00" + salt + text.encode()).digest() for salt, text in salted]


def leaf_hash(salt: bytes, text: str) -> bytes:
    """The hash of a text's leaf (RFC 9162 §2.1.1 over salt and text)."""
    return leaf_hashes([(salt, text)])[0]


def composed(
    parts: Sequence[Part], text: Callable[[int], str | None], most: int = LONGEST
) -> str | None:
    """The text of a composed leaf; None if a part is missing or the text is too long."""
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
    """Numbers of the leaves in the parts of a composed leaf."""
    return frozenset(
        [part if isinstance(part, int) else part[0] for part in parts if not isinstance(part, str)]
    )


def check_parts(leaves: Sequence[Leaf | LeafEntry], place: str) -> None:
    """Refuse duplicate names, fact leaves with another kind of name, and nested composed leaves."""
    names: set[str] = set()
    composite = {number for number, leaf in enumerate(leaves) if leaf.parts}
    for number, leaf in enumerate(leaves):
        if leaf.name in names:
            raise ReceiptBroken(f"{place}[{number}]", "has the name of another leaf")
        names.add(leaf.name)
        if leaf.name.startswith(FACT) != bool(leaf.fact_id):
            raise ReceiptBroken(f"{place}[{number}]", "has only one of a fact's name and id")
        if leaf.parts and not composite.isdisjoint(quoted(leaf.parts)):
            raise ReceiptBroken(f"{place}[{number}].parts", "names a leaf that has parts itself")


def _number(value: Any, count: int, place: str) -> int:
    number = whole(value, place)
    if number >= count:
        raise ReceiptBroken(place, f"leaf {number} is not one of {count}")
    return number


def _part(value: Any, count: int, place: str) -> Part:
    """Read a literal, a leaf number, or a stretch of a leaf."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return _number(value, count, place)
    if len(value) != 3:
        raise ReceiptBroken(place, f"has {len(value)} items, wanted leaf, start and end")
    start, end = whole(value[1], place), whole(value[2], place)
    if start > end:
        raise ReceiptBroken(place, "ends before it begins")
    return _number(value[0], count, place), start, end


_encoded = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode
_SURROGATE = re.compile("[\ud800-\udfff]")


class TextLeaves:
    """The leaves of a receipt that is being built, in the order of their numbers.

    Attributes:
        of: numbers of the leaves of facts in the model's context.
        suffix: ends the names of new leaves; while it is set, a leaf whose name without it and text
            are known is not added again.
    """

    def __init__(self) -> None:
        self.suffix = ""
        self.leaves: list[Leaf] = []
        self.of: tuple[int, ...] = ()
        self._facts: dict[str, int] = {}

    def fact(self, fact_id: str, text: str, source_id: str = "") -> int:
        """The number of a fact's leaf, added if it is new."""
        known = self._facts.get(fact_id)
        if known is None:
            known = self._facts[fact_id] = len(self.leaves)
            text = text if text.isascii() else _encodable(text)
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
        """Add a leaf and return its number; it is composed only if its parts give the text."""
        text = text if text.isascii() else _encodable(text)
        if self.suffix:
            for number, known in enumerate(self.leaves):
                if (known.name, known.text) == (name, text):
                    return number
            name += self.suffix
        if parts and self.composed(parts) == text:
            leaf = Leaf(name, text, of=tuple(of), follows=follows, parts=tuple(parts))
        else:
            leaf = Leaf(name, text, of=tuple(of), follows=follows)
        self.leaves.append(leaf)
        return len(self.leaves) - 1

    def number(self, name: str) -> int:
        """The number of the last leaf with a name."""
        return next(n for n in reversed(range(len(self.leaves))) if self.leaves[n].name == name)

    def named(self, text: str, prefix: str) -> str:
        """The name, beginning with the prefix, of the first leaf with this text; else empty."""
        matching = (leaf for leaf in self.leaves if leaf.text == text)
        return next((leaf.name for leaf in matching if leaf.name.startswith(prefix)), "")

    def composed(self, parts: Sequence[Part]) -> str:
        """The joined text of parts."""
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
        """The context of an envelope (`render@1`) as parts."""
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
    """The context (`render@1`) as parts, given the parts of each fact in it."""
    parts: list[Part] = []
    for number, pieces in enumerate(shown, start=1):
        parts.append(_marker(number))
        parts += pieces
    return tuple(parts)


def stretches(leaf: int, spans: Sequence[tuple[int, int]]) -> list[Part]:
    """Spans of a fact's leaf as parts, with an ellipsis between them."""
    parts: list[Part] = []
    for start, end in spans:
        parts += [ELLIPSIS, (leaf, start, end)] if parts else [(leaf, start, end)]
    return parts


@lru_cache(maxsize=1024)
def _marker(number: int) -> str:
    """The text before a fact in the context."""
    return f"[{number}] " if number == 1 else f"{SEPARATOR}[{number}] "


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return _SURROGATE.sub("\ufffd", text)


def small(value: int | None) -> int | None:
    """Clip a limit to the integers of canonical JSON; one above 2^53 has no effect anyway."""
    return None if value is None else max(-LARGEST, min(LARGEST, value))


def as_json(value: Any) -> str:
    """JSON for the text of a leaf; unlike the content, it may contain floats."""
    return _encoded(value)


def texts_as_json(value: Mapping[str, str] | Sequence[str]) -> str:
    """JSON of strings only, with the result of `as_json` in a fraction of its time."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        # orjson refuses lone surrogates.
        return _encoded(value)
