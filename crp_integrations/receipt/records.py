"""The file of a receipt (`receipt/1`): a signed envelope, the public key, and the texts.

The file is canonical JSON and a line feed, so that a receipt has exactly one encoding. Every part
of it can be checked: the envelope by its signature, the key by the signature's key id, and each
text by the hash in its leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.receipt.canonical import (
    b64,
    dumps,
    fields,
    kind_of,
    loads,
    seen,
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


class OmissionReason(StrEnum):
    """Why a text is missing. The reason is not signed; that the text existed is."""

    REDACTED = "redacted"
    ERASED = "erased"


class DisclosedText(NamedTuple):
    """A text that the file contains, with its salt.

    Attributes:
        text: None for a composed leaf, whose text is joined from others.
    """

    salt: bytes
    text: str | None


Text: TypeAlias = DisclosedText | OmissionReason


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of a receipt before it is signed.

    Attributes:
        content: a JSON object of integers, strings, booleans and null, without free text.
        leaves: all leaves, including `request`, `context` and `answer`.
    """

    content: Mapping[str, Any]
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True)
class Receipt:
    """A receipt as read: its structure is valid; its signature and hashes are not checked yet.

    Attributes:
        key: the public key in the file, 32 bytes.
        texts: one for each leaf, in the order of the leaves.
    """

    signed: Signed
    key: bytes
    statement: Statement
    texts: tuple[Text, ...]

    @cached_property
    def log_hash(self) -> bytes:
        """The hash of the receipt's entry in the log of receipts, 32 bytes."""
        return log_entry(self.signed.payload)

    @property
    def receipt_id(self) -> str:
        """Id of the signed payload; equal for all copies, whatever they leave out."""
        return id_of(self.log_hash)

    @property
    def keyid(self) -> str:
        """Id of the key that signed the receipt, 64 hexadecimal digits."""
        return self.signed.keyid

    @property
    def content(self) -> Mapping[str, Any]:
        """What was asked, selected, sent, found and decided."""
        return self.statement.content

    @property
    def chain(self) -> Chain:
        """The window's place in its session."""
        return self.statement.chain

    @property
    def leaves(self) -> tuple[LeafEntry, ...]:
        """The signed entries of the leaves."""
        return self.statement.leaves

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of each leaf by its name."""
        return {leaf.name: number for number, leaf in enumerate(self.leaves)}

    @cached_property
    def plain(self) -> Sequence[str | None]:
        """The text of each leaf; None for composed leaves and left-out texts."""
        return [None if isinstance(text, OmissionReason) else text.text for text in self.texts]

    def number(self, name: str) -> int:
        """The number of the leaf with this name."""
        return self.numbers[name]

    def text(self, number: int) -> str | None:
        """A leaf's text; None if it, or one of its parts, is left out."""
        text = self.plain[number]
        if text is not None or isinstance(self.texts[number], OmissionReason):
            return text
        # Parts of a composed leaf are never composed themselves, so one level is enough.
        return composed(self.leaves[number].parts, self.plain.__getitem__)

    def state(self, number: int) -> str:
        """`shown`, `redacted` or `erased`."""
        text = self.texts[number]
        return text.value if isinstance(text, OmissionReason) else "shown"

    def without(self, gone: Mapping[int, OmissionReason]) -> Receipt:
        """A copy with some texts replaced by the reasons for leaving them out."""
        texts = tuple(gone.get(number, text) for number, text in enumerate(self.texts))
        return replace(self, texts=texts)


def id_of(log_hash: bytes) -> str:
    """The id of a receipt, from the hash of its entry in the log."""
    return ID_PREFIX + log_hash.hex()[:ID_DIGITS]


def require_receipt(receipt: Receipt, name: str = "receipt") -> Receipt:
    """Return the argument; raise `RequestError` unless it is a Receipt."""
    return of_kind(
        receipt, Receipt, name, "a Receipt, such as read(Path('answer.json').read_bytes())"
    )


def write(receipt: Receipt) -> bytes:
    """The file of a receipt.

    Raises:
        RequestError: the argument is not a Receipt.
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
            strings_only=True,
        )
        + b"\n"
    )


def read(data: bytes) -> Receipt:
    """Read the file of a receipt.

    Raises:
        ReceiptBroken: not a receipt, a newer schema, or not canonical; names the place.
        RequestError: `data` is not bytes, but for example a file name.
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
    # A file has only known keys and string values, which are checked below.
    document = loads(data[:-1], "file", strings_only=True)
    if isinstance(document, dict) and document.get("schema") != SCHEMA:
        reason = f"is {seen(document.get('schema'))}, wanted {SCHEMA!r}"
        raise ReceiptBroken("schema", reason)
    document = fields(document, _FILE, "file")
    signed = Signed.from_json(document["envelope"], IN_TOTO)
    statement = Statement.from_payload(signed.payload)
    texts = document["texts"]
    if not isinstance(texts, list) or len(texts) != len(statement.leaves):
        count = f"{len(texts)} texts" if isinstance(texts, list) else seen(texts)
        reason = f"is {count}, wanted one for each of {len(statement.leaves)} leaves"
        raise ReceiptBroken("texts", reason)
    return Receipt(
        signed,
        unb64(document["key"], "key", KEY_BYTES),
        statement,
        texts_from_json(texts, statement.leaves),
    )


def texts_to_json(texts: Sequence[Text]) -> list[Any]:
    """Texts, or the reasons why they are missing, as JSON."""
    values: list[Any] = []
    for leaf_text in texts:
        if isinstance(leaf_text, OmissionReason):
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
    """Read a text, or the reason why it is missing."""
    if isinstance(value, str):
        try:
            return OmissionReason(value)
        except ValueError:
            raise ReceiptBroken(
                place, f"neither a text nor {' or '.join(OmissionReason)}"
            ) from None
    members = fields(value, _COMPOSED if leaf.parts else _PLAIN, place)
    salt = unb64(members["salt"], f"{place}.salt", SALT_BYTES)
    return DisclosedText(salt, None if leaf.parts else text_of(members["text"], f"{place}.text"))


def issue(draft: Draft, chain: Chain, key: SigningKey, salt_key: bytes) -> Receipt:
    """Sign a draft as the receipt of a window."""
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
    statement, payload = statement.finished()
    signed = key.sign(IN_TOTO, payload)
    shown = tuple(
        DisclosedText(salt, None if leaf.parts else text)
        for salt, leaf, text in zip(hidden, leaves, texts, strict=True)
    )
    return Receipt(signed, key.public, statement, shown)


def _text(leaf: Leaf, leaves: Sequence[Leaf]) -> str:
    """The text of a leaf, joined from its parts if it is empty."""
    if leaf.text:
        return leaf.text
    text = composed(leaf.parts, lambda number: leaves[number].text)
    if text is None:
        raise ValueError(f"leaf {leaf.name!r:.60} has a stretch beyond the end of its leaf")
    return text
