"""Files of receipts, keys and proofs, and the `crp receipt` commands that read a store."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from crp_integrations.cli import options, receipt_views
from crp_integrations.cli.fabric import new_file
from crp_integrations.cli.store_access import opened_relay
from crp_integrations.errors import ConfigError, ReceiptBroken, RequestError
from crp_integrations.markup import counted
from crp_integrations.receipt.ledger import SignedHead, check_consistency
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.signed_statement import KEY_BYTES

if TYPE_CHECKING:
    from crp_integrations.relay.receipts import Receipts

_T = TypeVar("_T")
File = Annotated[str, typer.Argument(help="File of a receipt.", metavar="RECEIPT")]
Out = Annotated[str, typer.Option("--out", "-o", help="A new file; standard output when left out.")]
_PEM = re.compile(rb"-----BEGIN [^-]+-----.*?-----END [^-]+-----", re.DOTALL)


def read_bytes(path: str) -> bytes:
    """The bytes of a file."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path!r:.200} cannot be read: {reason}") from error


def read_receipt(path: str) -> Receipt:
    """The receipt of a file, as it is written; nothing of it is verified."""
    return read_signed(path, read)


def read_signed(path: str, reading: Callable[[bytes], _T]) -> _T:
    """What a file holds: a receipt, a proof or a head."""
    try:
        return reading(read_bytes(path))
    except ReceiptBroken as error:
        raise ReceiptBroken(f"{path!r:.200}, {error.place}", error.reason) from error


def read_public_keys(path: str) -> list[bytes]:
    """The public keys of a file: PEM, one or more, or 32 bytes as they are, in base64 or hex."""
    data = read_bytes(path)
    blocks = _PEM.findall(data)
    if blocks:
        return [_key_of_pem(block, path) for block in blocks]
    if len(data) == KEY_BYTES:
        return [data]
    text = data.strip()
    for decode in (bytes.fromhex, lambda word: base64.b64decode(word, validate=True)):
        try:
            key = decode(text.decode("ascii"))
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return [key]
    raise ConfigError(
        f"{path!r:.200} holds no public key; wanted PEM, or {KEY_BYTES} bytes in hex or base64"
    )


def _key_of_pem(block: bytes, path: str) -> bytes:
    try:
        key = load_pem_public_key(block)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path!r:.200} holds a PEM block that is no public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{path!r:.200} holds a {type(key).__name__}, wanted one of Ed25519")
    return key.public_bytes_raw()


def public_key_pem(key: bytes) -> str:
    """A public key as PEM."""
    made = Ed25519PublicKey.from_public_bytes(key)
    return made.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def write_receipt(receipt: Receipt, out: str) -> None:
    """Write the file of a receipt."""
    write_text(write(receipt), out)


def write_text(data: bytes, out: str) -> None:
    """Write canonical JSON, which is UTF-8, or another text."""
    with new_file(out) as file:
        file.write(data.decode("utf-8"))


@options.with_scope
def export(
    name: Annotated[
        str, typer.Argument(help="Id of a receipt or of its window.", metavar="ID")
    ] = "",
    key: Annotated[
        bool,
        typer.Option(
            "--key", help="The store's public keys as PEM instead, the present one first."
        ),
    ] = False,
    head: Annotated[
        bool, typer.Option("--head", help="The signed head of the log of receipts instead.")
    ] = False,
    since: Annotated[
        str, typer.Option("--since", help="With --head: an earlier head that must be continued.")
    ] = "",
    proof: Annotated[
        bool, typer.Option("--proof", help="The proof that the receipt is in the log instead.")
    ] = False,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="With --proof: size of the log; the present one."),
    ] = None,
    out: Out = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write a receipt of a store to a file, or the public key, head or proof that go with it.

    With --since, status 1 when the log does not go on from the earlier head.
    """
    if key + head + proof > 1:
        raise RequestError("give one of --key, --head and --proof")
    if bool(name) == (key or head):
        raise RequestError("give ID for a receipt or a proof, and none with --key or --head")
    if (since and not head) or (size is not None and not proof):
        raise RequestError("--since goes with --head, and --size with --proof")
    before = read_signed(since, SignedHead.read) if since else None
    with opened_relay(scope) as relay:
        receipts = relay.receipts()
        if key:
            made = "".join(map(public_key_pem, reversed(receipts.keys))).encode()
            what = "public key"
        elif head:
            now = receipts.head()
            if before is not None:
                _check_continued(receipts, before, now)
            made, what = now.write(), f"head of a log of {counted(now.head.size, 'receipt')}"
        else:
            receipt = receipts.get(name)
            if receipt is None:
                raise RequestError(
                    f"the store has no receipt {name!r:.80}; crp receipt show lists them"
                )
            made, what = write(receipt), receipt.receipt_id
            if proof:
                included = receipts.inclusion(receipt.receipt_id, size)
                made = included.write()
                what = f"proof in a log of {counted(included.size, 'receipt')}"
    write_text(made, out)
    receipt_views.report_written(out, what)


def _check_continued(receipts: Receipts, before: SignedHead, now: SignedHead) -> None:
    before.check(receipts.keys)
    if before.head.size > now.head.size:
        reason = f"is {now.head.size}, that before was {before.head.size}"
        raise ReceiptBroken("head.size", reason)
    path = receipts.consistency(before.head.size, now.head.size)
    check_consistency(path, before.head, now.head)


def list_receipts(session: str, scope: options.StoreScope, *, as_json: bool) -> None:
    """List the receipts of a store: id, time, session, number and id of the window."""
    with opened_relay(scope) as relay:
        receipts = relay.receipts()
        ids = receipts.ids(session, limit=receipts.head().head.size)
        receipt_views.draw_receipt_list(
            (receipt for id_ in ids if (receipt := receipts.get(id_))), as_json=as_json
        )
