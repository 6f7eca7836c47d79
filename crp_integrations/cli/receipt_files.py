"""Files that `crp receipt …` reads and writes: receipts, keys, proofs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from crp_integrations.cli.facts import opened
from crp_integrations.errors import ConfigError, ReceiptBroken
from crp_integrations.receipt.dsse import KEY_BYTES
from crp_integrations.receipt.records import Receipt, read, write

_T = TypeVar("_T")
File = Annotated[str, typer.Argument(help="File of a receipt.", metavar="RECEIPT")]
Out = Annotated[str, typer.Option("--out", "-o", help="A new file; standard output when left out.")]
_PEM = re.compile(rb"-----BEGIN [^-]+-----.*?-----END [^-]+-----", re.DOTALL)


def data_of(path: str) -> bytes:
    """The bytes of a file.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path!r:.200} cannot be read: {reason}") from error


def receipt_of(path: str) -> Receipt:
    """The receipt of a file, as it is written; nothing of it is verified.

    Raises:
        ConfigError: the file cannot be read.
        ReceiptBroken: it is no receipt; names the file.
    """
    return read_of(path, read)


def read_of(path: str, reading: Callable[[bytes], _T]) -> _T:
    """What a file holds: a receipt, a proof or a head.

    Raises:
        ConfigError: the file cannot be read.
        ReceiptBroken: it holds something else; names the file.
    """
    try:
        return reading(data_of(path))
    except ReceiptBroken as error:
        raise ReceiptBroken(f"{path!r:.200}, {error.place}", error.reason) from error


def keys_of(path: str) -> list[bytes]:
    """The public keys of a file: PEM, one or more, or 32 bytes as they are, in base64 or hex.

    Raises:
        ConfigError: it cannot be read, or holds no Ed25519 public key.
    """
    data = data_of(path)
    blocks = _PEM.findall(data)
    if blocks:
        return [_of_pem(block, path) for block in blocks]
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


def _of_pem(block: bytes, path: str) -> bytes:
    try:
        key = load_pem_public_key(block)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path!r:.200} holds a PEM block that is no public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{path!r:.200} holds a {type(key).__name__}, wanted one of Ed25519")
    return key.public_bytes_raw()


def pem_of(key: bytes) -> str:
    """A public key as PEM.

    Args:
        key: 32 bytes.
    """
    made = Ed25519PublicKey.from_public_bytes(key)
    return made.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def save(receipt: Receipt, out: str) -> None:
    """Write the file of a receipt.

    Raises:
        ConfigError: the file is there already or cannot be written.
    """
    save_bytes(write(receipt), out)


def save_bytes(data: bytes, out: str) -> None:
    """Write canonical JSON, which is UTF-8, or another text.

    Raises:
        ConfigError: the file is there already or cannot be written.
    """
    with opened(out) as file:
        file.write(data.decode("utf-8"))
