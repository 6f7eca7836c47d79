"""Bytes to text, without guessing."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

from crp_integrations.errors import IngestError

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class NoTextError(IngestError):
    """A file can be read and holds no text: no reason to refuse the folder that it lies in."""


def decode(data: bytes, *, name: str, declared: str = "") -> str:
    """Decode by byte-order mark, else by the encoding declared, else as UTF-8.

    Args:
        data: a file's bytes.
        name: how messages call the file.
        declared: an encoding that the file itself names, empty for none.

    Returns:
        Text with line feeds at line ends and without a byte-order mark.

    Raises:
        IngestError: the bytes are not text in that encoding.
        NoTextError: they are nothing but white space.
    """
    encoding, marked = encoding_of(data, declared)
    try:
        text = data[marked:].decode(encoding)
    except LookupError:
        raise IngestError(f"{name} declares the encoding {encoding!r}, which is unknown") from None
    except UnicodeDecodeError as error:
        raise _no_text(name, encoding, error.start) from None
    if "\x00" in text:
        raise _nul(name)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise NoTextError(f"{name} holds no text")
    return text


def encoding_of(data: bytes, declared: str = "") -> tuple[str, int]:
    """The encoding by byte-order mark, else the declared one, else UTF-8; the mark's length."""
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return marked, len(mark)
    return declared or "utf-8", 0


def decoded(pieces: Iterable[bytes], *, name: str) -> Iterator[str]:
    """Decode a long file piece by piece; joined, the text is what `decode` gives of the whole.

    Args:
        pieces: the file's bytes in order, the first with at least four of them.
        name: how messages call the file.

    Raises:
        IngestError: the bytes are not text in their encoding.
    """
    decoder: codecs.IncrementalDecoder | None = None
    encoding, read, held = "", 0, ""
    for piece in pieces:
        body = piece
        if decoder is None:
            encoding, marked = encoding_of(piece)
            decoder = codecs.getincrementaldecoder(encoding)()
            body = piece[marked:]
        held, text = _lines(held + _step(decoder, body, read, encoding, name), name)
        read += len(body)
        yield text
    if decoder is not None:
        last = held + _step(decoder, b"", read, encoding, name, final=True)
        yield last.replace("\r", "\n")


def _lines(text: str, name: str) -> tuple[str, str]:
    """A carriage return at the end, whose line feed may come yet, and the text before it."""
    if "\x00" in text:
        raise _nul(name)
    held = "\r" if text.endswith("\r") else ""
    text = text.removesuffix("\r")
    return held, text.replace("\r\n", "\n").replace("\r", "\n")


def _step(
    decoder: codecs.IncrementalDecoder,
    data: bytes,
    before: int,
    encoding: str,
    name: str,
    *,
    final: bool = False,
) -> str:
    # Bytes of a character that is not whole yet count in the positions of an error.
    kept = len(decoder.getstate()[0])
    try:
        return decoder.decode(data, final)
    except UnicodeDecodeError as error:
        raise _no_text(name, encoding, before - kept + error.start) from None


def _no_text(name: str, encoding: str, place: int) -> IngestError:
    return IngestError(
        f"{name} is not text: byte {place} is not {encoding.upper()}; save it as UTF-8"
    )


def _nul(name: str) -> IngestError:
    return IngestError(f"{name} is not text: it holds NUL characters")
