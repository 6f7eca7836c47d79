"""The file: a signed envelope, the public key, and the texts beside it (`receipt/1`).

The file is canonical JSON and a line feed, so that one receipt is one sequence of bytes. Nothing
in it goes unchecked: the envelope is signed, the key is what the signature's key id names, and
each text is what its leaf's hash is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.receipt.canonical import (
    Written,
    b64,
    dumps,
    fields,
    kind_of,
    loads,
    text_of,
    unb64,
)
from crp_integrations.receipt.leaves import (
    SALT_BYTES,
    Leaf,
    LeafEntry,
    check_parts,
    composed,
    leaf_hashes,
    salts,
)
from crp_integrations.receipt.merkle import Tree
from crp_integrations.receipt.merkle import leaf_hash as log_entry
from crp_integrations.receipt.signed_statement import (
    IN_TOTO,
    KEY_BYTES,
    SUBJECTS,
    Chain,
    Signed,
    SigningKey,
    Statement,
)
from crp_integrations.validation import of_kind

SCHEMA: Final = "receipt/1"
ID_PREFIX: Final = "crp_rcpt_"
ID_DIGITS: Final = 32
_FILE = frozenset({"envelope", "key", "schema", "texts"})
_PLAIN = frozenset({"salt", "text"})
_COMPOSED = frozenset({"salt"})


class LeftOut(StrEnum):
    """Why a text is not there. The word is not signed; that the text was there is."""

    REDACTED = "redacted"
    ERASED = "erased"


class Shown(NamedTuple):
    """A text that is there, with its salt.

    Attributes:
        text: None for a composed leaf, whose text follows from others.
    """

    salt: bytes
    text: str | None


Text: TypeAlias = Shown | LeftOut


@dataclass(frozen=True, slots=True)
class Draft:
    """What a receipt is to hold, before it is signed.

    Attributes:
        content: JSON objects of whole numbers, texts, booleans and null; no free text.
        leaves: `request`, `context` and `answer` among them.
    """

    content: Mapping[str, Any]
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Receipt:
    """A receipt as read: its shape is right, and nothing else is checked yet.

    Attributes:
        key: the public key that it names, 32 bytes.
        texts: one for each leaf, in their order.
    """

    signed: Signed
    key: bytes
    statement: Statement
    texts: tuple[Text, ...]

    @cached_property
    def log_hash(self) -> bytes:
        """The hash of its leaf in the log of receipts, 32 bytes."""
        return log_entry(self.signed.payload)

    @property
    def receipt_id(self) -> str:
        """Names what is signed; all copies of it, whatever was left out, have the same."""
        return id_of(self.log_hash)

    @property
    def keyid(self) -> str:
        """Of the key that signed it, 64 hexadecimal digits."""
        return self.signed.keyid

    @property
    def content(self) -> Mapping[str, Any]:
        """What was asked, selected, sent, found and decided."""
        content = self.statement.content
        return content.members if isinstance(content, Written) else content

    @property
    def chain(self) -> Chain:
        """The window's place in its session."""
        return self.statement.chain

    @property
    def leaves(self) -> tuple[LeafEntry, ...]:
        """The leaves of its texts."""
        return self.statement.leaves

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each leaf by its name."""
        return {leaf.name: number for number, leaf in enumerate(self.leaves)}

    @cached_property
    def plain(self) -> Sequence[str | None]:
        """The text of each leaf that has one of its own; None for others and for left-out ones."""
        return [None if isinstance(text, LeftOut) else text.text for text in self.texts]

    def number(self, name: str) -> int:
        """The number of a leaf."""
        return self.numbers[name]

    def text(self, number: int) -> str | None:
        """A leaf's text; None when it, or something that it is put together from, is left out."""
        text = self.plain[number]
        if text is not None or isinstance(self.texts[number], LeftOut):
            return text
        # No leaf in a composed one is composed itself.
        return composed(self.leaves[number].parts, self.plain.__getitem__)

    def state(self, number: int) -> str:
        """`shown`, `redacted` or `erased`."""
        text = self.texts[number]
        return text.value if isinstance(text, LeftOut) else "shown"

    def without(self, gone: Mapping[int, LeftOut]) -> Receipt:
        """The same receipt with some texts replaced by the word for why they are left out."""
        texts = tuple(gone.get(number, text) for number, text in enumerate(self.texts))
        return replace(self, texts=texts)


def id_of(log_hash: bytes) -> str:
    """The name of a receipt by the hash of its leaf in the log."""
    return ID_PREFIX + log_hash.hex()[:ID_DIGITS]


def require_receipt(receipt: Receipt, name: str = "receipt") -> Receipt:
    """A receipt that a caller gave."""
    return of_kind(
        receipt, Receipt, name, "a Receipt, such as read(Path('answer.json').read_bytes())"
    )


def write(receipt: Receipt) -> bytes:
    """The file of a receipt.

    Raises:
        RequestError: it is no receipt.
    """
    require_receipt(receipt)
    return (
        dumps(
            {
                "envelope": receipt.signed.to_json(),
                "key": b64(receipt.key),
                "schema": SCHEMA,
                "texts": texts_to_json(receipt.texts),
            },
            texts_alone=True,
        )
        + b"\n"
    )


def read(data: bytes) -> Receipt:
    """Read the file of a receipt.

    Raises:
        ReceiptBroken: it is none, is a newer one, or not in its one encoding; names the place.
        RequestError: the bytes of a file were not given, but its name, say.
    """
    if not isinstance(data, bytes):
        raise RequestError(
            f"a receipt is read from bytes, such as Path('answer.json').read_bytes(); "
            f"got {type(data).__name__}"
        )
    try:
        return _read(data)
    except ReceiptBroken:
        kind = kind_of(data)
        if kind and kind != SCHEMA:
            raise ReceiptBroken("schema", f"is {kind!r:.60}, wanted {SCHEMA!r}") from None
        raise


def _read(data: bytes) -> Receipt:
    if not data.endswith(b"\n"):
        raise ReceiptBroken(f"file, byte {len(data)}", "does not end with a line feed")
    # A file has only known keys and text values; each value is checked to be a text below.
    document = loads(data[:-1], "file", texts_alone=True)
    if isinstance(document, dict) and document.get("schema") != SCHEMA:
        raise ReceiptBroken("schema", f"is not {SCHEMA!r}")
    document = fields(document, _FILE, "file")
    signed = Signed.from_json(document["envelope"], IN_TOTO)
    statement = Statement.from_payload(signed.payload)
    texts = document["texts"]
    if not isinstance(texts, list) or len(texts) != len(statement.leaves):
        raise ReceiptBroken("texts", f"wanted one for each of {len(statement.leaves)} leaves")
    return Receipt(
        signed,
        unb64(document["key"], "key", KEY_BYTES),
        statement,
        texts_from_json(texts, statement.leaves),
    )


def texts_to_json(texts: Sequence[Text]) -> list[Any]:
    """Texts, or the words in their places, as JSON."""
    values: list[Any] = []
    for leaf_text in texts:
        if isinstance(leaf_text, LeftOut):
            values.append(leaf_text.value)
        else:
            salt = {"salt": b64(leaf_text.salt)}
            values.append(salt if leaf_text.text is None else {**salt, "text": leaf_text.text})
    return values


def texts_from_json(values: Sequence[Any], leaves: Sequence[LeafEntry]) -> tuple[Text, ...]:
    """Read the texts of a receipt, one for each leaf."""
    return tuple(
        [
            _text_from_json(value, leaf, f"texts[{number}]")
            for number, (value, leaf) in enumerate(zip(values, leaves, strict=True))
        ]
    )


def _text_from_json(value: Any, leaf: LeafEntry, place: str) -> Text:
    """Read a text, or the word in its place."""
    if isinstance(value, str):
        try:
            return LeftOut(value)
        except ValueError:
            raise ReceiptBroken(place, f"neither a text nor {' or '.join(LeftOut)}") from None
    members = fields(value, _COMPOSED if leaf.parts else _PLAIN, place)
    salt = unb64(members["salt"], f"{place}.salt", SALT_BYTES)
    return Shown(salt, None if leaf.parts else text_of(members["text"], f"{place}.text"))


def issue(draft: Draft, chain: Chain, key: SigningKey, salt_key: bytes) -> Receipt:
    """Sign the receipt of a window."""
    leaves = draft.leaves
    try:
        check_parts(leaves, "leaves")
    except ReceiptBroken as error:
        raise ValueError(str(error)) from None
    hidden = salts(salt_key, chain.hmac, len(leaves))
    texts = [_text(leaf, leaves) if leaf.parts else leaf.text for leaf in leaves]
    digests = leaf_hashes(zip(hidden, texts, strict=True))
    hashes = {leaf.name: digest for leaf, digest in zip(leaves, digests, strict=True)}
    missing = [name for name in SUBJECTS if name not in hashes]
    if missing:
        raise ValueError(f"no leaf is named {missing[0]!r}")
    statement = Statement(
        {name: hashes[name] for name in SUBJECTS},
        chain,
        tuple(
            LeafEntry(leaf.name, digest, leaf.fact_id, leaf.of, leaf.follows, leaf.parts)
            for leaf, digest in zip(leaves, digests, strict=True)
        ),
        Tree(digests).root,
        draft.content,
    )
    signed = key.sign(IN_TOTO, statement.to_payload())
    shown = tuple(
        Shown(salt, None if leaf.parts else text)
        for salt, leaf, text in zip(hidden, leaves, texts, strict=True)
    )
    return Receipt(signed, key.public, statement, shown)


def _text(leaf: Leaf, leaves: Sequence[Leaf]) -> str:
    """The text of a leaf, composed where it has none of its own."""
    if leaf.text:
        return leaf.text
    text = composed(leaf.parts, lambda number: leaves[number].text)
    if text is None:
        raise ValueError(f"leaf {leaf.name!r:.60} has a stretch that its leaf is too short for")
    return text
