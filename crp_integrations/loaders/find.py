"""Which files a path means."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
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
class Found:
    """The files of a path.

    Attributes:
        root: the folder that names are relative to.
        files: what will be loaded, sorted by name within each folder.
        skipped: files of a folder that will not be: of an unknown suffix, or links that lead
            out of it or nowhere.
    """

    root: Path
    files: tuple[Path, ...]
    skipped: tuple[Path, ...] = ()


def find(path: str | Path) -> Found:
    """List the files of a file or folder; hidden ones are neither loaded nor counted.

    Folders behind symbolic links are not entered, so a loop of links ends the walk nowhere.

    Raises:
        IngestError: there is nothing at the path, or nothing that can be loaded.
    """
    # `Path("")` is the current folder, which nobody means by a variable that is not set.
    if path == "":
        raise IngestError("the path '' is empty; give a file or a folder")
    start = Path(path)
    try:
        if not start.exists():
            raise IngestError(f"{start} does not exist; give a file or a folder")
        if start.is_file():
            return Found(start.parent, (start,))
        if not start.is_dir():
            raise IngestError(f"{start} is neither a file nor a folder")
        return _walk(start)
    except (OSError, ValueError) as error:
        raise IngestError(f"{str(start)!r} cannot be read: {_reason(error)}") from error


def passed_over(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    """Files of the folders among paths that are not loaded: of an unknown suffix, or odd links.

    Raises:
        IngestError: as for `find`.
    """
    folders = [path for path in paths if path != "" and Path(path).is_dir()]
    return tuple(file for folder in folders for file in find(folder).skipped)


def _walk(root: Path) -> Found:
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
            f"{root} holds no file that can be loaded; wanted {', '.join(sorted(SUFFIXES))}"
        )
    return Found(root, tuple(files), tuple(skipped))


def read_bytes(file: Path) -> bytes:
    """A file's bytes.

    Raises:
        IngestError: it cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise IngestError(f"{file} cannot be read: {_reason(error)}") from error


def size(file: Path) -> int:
    """Bytes of a file.

    Raises:
        IngestError: it cannot be read.
    """
    try:
        return file.stat().st_size
    except OSError as error:
        raise IngestError(f"{file} cannot be read: {_reason(error)}") from error


def pieces(file: Path) -> Iterator[bytes]:
    """A file's bytes, a mebibyte at a time.

    Raises:
        IngestError: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            while piece := opened.read(_PIECE):
                yield piece
    except OSError as error:
        raise IngestError(f"{file} cannot be read: {_reason(error)}") from error


def lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Each line of a file with the place of its first byte, line feed included.

    Raises:
        IngestError: it cannot be read.
    """
    place = 0
    try:
        with file.open("rb") as opened:
            for line in opened:
                yield place, line
                place += len(line)
    except OSError as error:
        raise IngestError(f"{file} cannot be read: {_reason(error)}") from error


def part(file: Path, start: int, length: int) -> bytes:
    """Bytes of a file from a place on; fewer where it ends.

    Raises:
        IngestError: it cannot be read.
    """
    try:
        with file.open("rb") as opened:
            opened.seek(start)
            return opened.read(length)
    except OSError as error:
        raise IngestError(f"{file} cannot be read: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
