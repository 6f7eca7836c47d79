"""Find the files of a path, read their bytes and decode them, without guessing an encoding."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crp_integrations.errors import IngestError

_PIECE = 1 << 20

SUFFIXES = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".mdown": "markdown",
    ".txt": "text",
    ".text": "text",
    ".rst": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a path.

    Attributes:
        root: the folder that names are relative to.
        files: files to load, sorted by name within each folder.
        skipped: files of a folder that are not loaded: unknown suffixes, broken links, and links
            that lead out of the folder.
    """

    root: Path
    files: tuple[Path, ...]
    skipped: tuple[Path, ...] = ()


def find_files(path: str | Path) -> FoundFiles:
    """List the files at a path (a file or a folder); hidden ones are neither loaded nor counted.

    Symbolic links to folders are not followed, so a loop of links cannot make the walk endless.
    """
    # `Path("")` is the current folder, but an empty path is most likely a variable not set.
    if path == "":
        raise IngestError("the path '' is empty; give a file or a folder")
    start = Path(path)
    try:
        if not start.exists():
            raise IngestError(f"{start} does not exist; give a file or a folder")
        if start.is_file():
            return FoundFiles(start.parent, (start,))
        if not start.is_dir():
            raise IngestError(f"{start} is neither a file nor a folder")
        return _walk_folder(start)
    except (OSError, ValueError) as error:
        raise IngestError(f"{str(start)!r} cannot be read: {_reason(error)}") from error


def skipped_files(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """List the files that are not loaded from folders: see `FoundFiles.skipped`."""
    folders = [path for path in paths if path != "" and Path(path).is_dir()]
    return tuple(file for folder in folders for file in find_files(folder).skipped)


def _walk_folder(root: Path) -> FoundFiles:
    files: list[Path] = []
    skipped: list[Path] = []
    inside = root.resolve()

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if name.startswith("."):
                continue
            known = file.suffix.lower() in SUFFIXES and file.is_file()
            if known and (not file.is_symlink() or file.resolve().is_relative_to(inside)):
                files.append(file)
            else:
                skipped.append(file)
    if not files:
        raise IngestError(
            f"{root} contains no file that can be loaded; wanted {', '.join(sorted(SUFFIXES))}"
        )
    return FoundFiles(root, tuple(files), tuple(skipped))


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise IngestError(f"{file} cannot be read: {_reason(error)}") from error


def read_bytes(file: Path) -> bytes:
    """A file's bytes."""
    with _reading(file):
        return file.read_bytes()


def file_size(file: Path) -> int:
    """Bytes of a file."""
    with _reading(file):
        return file.stat().st_size


def read_pieces(file: Path) -> Iterator[bytes]:
    """Yield a file's bytes, one mebibyte at a time."""
    with _reading(file), file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            yield piece


def read_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line of a file, line feed included, after the offset of its first byte."""
    place = 0
    with _reading(file), file.open("rb") as opened:
        for line in opened:
            yield place, line
            place += len(line)


def read_part(file: Path, start: int, length: int) -> bytes:
    """Read `length` bytes from offset `start`; fewer at the end of the file."""
    with _reading(file), file.open("rb") as opened:
        opened.seek(start)
        return opened.read(length)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


# UTF-32 before UTF-16: its little-endian mark begins with the UTF-16 mark.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class NoTextError(IngestError):
    """A readable file contains no text; the other files of its folder are still loaded."""


def decode(data: bytes, *, name: str, declared: str = "") -> str:
    """Decode by byte-order mark, else by the declared encoding, else as UTF-8."""
    encoding, marked = encoding_of(data, declared)
    try:
        text = data[marked:].decode(encoding)
    except LookupError:
        raise IngestError(f"{name} declares the encoding {encoding!r}, which is unknown") from None
    except UnicodeDecodeError as error:
        raise _not_text(name, encoding, error.start) from None
    if "\x00" in text:
        raise _nul_error(name)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise NoTextError(f"{name} contains no text")
    return text


def encoding_of(data: bytes, declared: str = "") -> tuple[str, int]:
    """Return the encoding (from the mark, else declared, else UTF-8) and the mark's length."""
    for mark, marked in _MARKS:
        if data.startswith(mark):
            return marked, len(mark)
    return declared or "utf-8", 0


def decode_pieces(pieces: Iterable[bytes], *, name: str) -> Iterator[str]:
    """Decode a long file piece by piece; the joined pieces equal `decode` of the whole file."""
    decoder: codecs.IncrementalDecoder | None = None
    encoding, read, held = "", 0, ""
    for piece in pieces:
        body = piece
        if decoder is None:
            encoding, marked = encoding_of(piece)
            decoder = codecs.getincrementaldecoder(encoding)()
            body = piece[marked:]
        held, text = _split_line_ends(
            held + _decode_piece(decoder, body, read, encoding, name), name
        )
        read += len(body)
        yield text
    if decoder is not None:
        last = held + _decode_piece(decoder, b"", read, encoding, name, final=True)
        yield last.replace("\r", "\n")


def _split_line_ends(text: str, name: str) -> tuple[str, str]:
    """Split off a final carriage return: its line feed may be in the next piece."""
    if "\x00" in text:
        raise _nul_error(name)
    held = "\r" if text.endswith("\r") else ""
    text = text.removesuffix("\r")
    return held, text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_piece(
    decoder: codecs.IncrementalDecoder,
    data: bytes,
    before: int,
    encoding: str,
    name: str,
    *,
    final: bool = False,
) -> str:
    # An error's position also counts the pending bytes of an incomplete character.
    pending = len(decoder.getstate()[0])
    try:
        return decoder.decode(data, final)
    except UnicodeDecodeError as error:
        raise _not_text(name, encoding, before - pending + error.start) from None


def _not_text(name: str, encoding: str, place: int) -> IngestError:
    return IngestError(
        f"{name} is not text: byte {place} is not {encoding.upper()}; save it as UTF-8"
    )


def _nul_error(name: str) -> IngestError:
    return IngestError(f"{name} is not text: it contains NUL characters")
