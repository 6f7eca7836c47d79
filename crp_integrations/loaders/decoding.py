"""Bytes to text, without guessing."""

from __future__ import annotations

import codecs

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
    encoding, body = declared or "utf-8", data
    for mark, marked in _MARKS:
        if data.startswith(mark):
            encoding, body = marked, data[len(mark) :]
            break
    try:
        text = body.decode(encoding)
    except LookupError:
        raise IngestError(f"{name} declares the encoding {encoding!r}, which is unknown") from None
    except UnicodeDecodeError as error:
        raise IngestError(
            f"{name} is not text: byte {error.start} is not {encoding.upper()}; save it as UTF-8"
        ) from None
    if "\x00" in text:
        raise IngestError(f"{name} is not text: it holds NUL characters")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise NoTextError(f"{name} holds no text")
    return text
