"""Files of receipts, keys and proofs, and the `crp receipt` commands that read a store."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from crp_integrations.cli import options, receipt_views
from crp_integrations.cli.fabric import new_file
from crp_integrations.cli.store_access import opened_relay
from crp_integrations.cli.terminal import counted
from crp_integrations.errors import ConfigError, ReceiptBroken, RequestError
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


Name = Annotated[str, typer.Argument(help="Id of a receipt or of its window.", metavar="ID")]


def register(app: typer.Typer) -> None:
    """Add the commands to the group."""
    app.command("list")(list_)
    app.command("export")(export)
    app.command("key")(key)
    app.command("head")(head)
    app.command("proof")(proof)


@contextmanager
def _opened_receipts(scope: options.StoreScope) -> Iterator[Receipts]:
    """The receipts of a store that is there, as it is."""
    with opened_relay(scope) as relay:
        yield relay.receipts()


@options.with_scope
def list_(
    session: Annotated[str, typer.Option("--session", help="Only those of this session.")] = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """List the receipts of a store: id, time, session, number and id of the window."""
    with _opened_receipts(scope) as receipts:
        ids = receipts.ids(session, limit=receipts.head().head.size)
        receipt_views.draw_receipt_list(
            (found for id_ in ids if (found := receipts.get(id_))), as_json=as_json
        )


@options.with_scope
def export(
    name: Name,
    out: Out = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write the receipt of a window to a file, with the texts that the store still has."""
    with _opened_receipts(scope) as receipts:
        found = _receipt_named(receipts, name)
    write_receipt(found, out)
    receipt_views.report_written(out, found.receipt_id)


def _receipt_named(receipts: Receipts, name: str) -> Receipt:
    found = receipts.get(name)
    if found is None:
        raise RequestError(f"the store has no receipt {name!r:.80}; crp receipt list names them")
    return found


@options.with_scope
def key(
    out: Out = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write the public key of a store's receipts as PEM, and after it those of earlier epochs."""
    with _opened_receipts(scope) as receipts:
        blocks = [public_key_pem(one) for one in reversed(receipts.keys)]
    write_text("".join(blocks).encode(), out)
    receipt_views.report_written(out, "public key")


@options.with_scope
def head(
    since: Annotated[
        str, typer.Option("--since", help="An earlier head: the log must only go on from it.")
    ] = "",
    out: Out = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write the signed head of the log; status 1 when it does not go on from an earlier one."""
    before = read_signed(since, SignedHead.read) if since else None
    with _opened_receipts(scope) as receipts:
        now = receipts.head()
        if before is not None:
            before.check(receipts.keys)
            if before.head.size > now.head.size:
                reason = f"is {now.head.size}, that before was {before.head.size}"
                raise ReceiptBroken("head.size", reason)
            path = receipts.consistency(before.head.size, now.head.size)
            check_consistency(path, before.head, now.head)
    write_text(now.write(), out)
    receipt_views.report_written(out, f"head of a log of {counted(now.head.size, 'receipt')}")


@options.with_scope
def proof(
    name: Name,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="Size of the log, as its head says; the present one."),
    ] = None,
    out: Out = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write the proof that a receipt is in the log, for `crp receipt verify --proof`."""
    with _opened_receipts(scope) as receipts:
        made = receipts.inclusion(_receipt_named(receipts, name).receipt_id, size)
    write_text(made.write(), out)
    receipt_views.report_written(out, f"proof in a log of {counted(made.size, 'receipt')}")
