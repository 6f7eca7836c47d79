"""Model files included in the package, with their cards and hashes.

`load` takes a model's name and returns its directory and card after checking all hashes. Each
directory contains the files of one model, a card for programs, one for people, and the licence.
This subpackage runs no model, imports no library for that, and never writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints, ValidationError

from crp_integrations.errors import EngineError
from crp_integrations.records import Record
from crp_integrations.seals import sha256_hex

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)+$")]


class Card(Record):
    """Description of the files of one model.

    Attributes:
        name: the model's public name.
        version: quantisation and revision, such as `int8@1`; changed bytes need a new number.
        licence: SPDX identifier of the weights' licence.
        notice: who made the weights and what was changed here.
        origin: source of the original weights.
        origin_sha256: SHA-256 of the original weights.
        files: SHA-256 of each file by name.
        dimensions: length of a vector; 0 if the model gives none.
        passage: maximum input in tokens, including special tokens; 0 if there is no limit.
        overlap: number of tokens shared by neighbouring windows of a longer text.
        thresholds: calibrated values in [-1, 1] by name.
        limits: what the model cannot do, in sentences.
    """

    SCHEMA: ClassVar[str] = "weights-card/1"

    name: str
    version: str
    licence: str
    notice: str = ""
    origin: str
    origin_sha256: Sha256
    files: Mapping[FileName, Sha256]
    dimensions: int = Field(default=0, ge=0)
    passage: int = Field(default=0, ge=0)
    overlap: int = Field(default=0, ge=0)
    thresholds: Mapping[str, Annotated[float, Field(ge=-1, le=1)]] = Field(default_factory=dict)
    limits: str


@dataclass(frozen=True, slots=True)
class Weights:
    """A directory of model files and its card."""

    path: Path
    card: Card

    def read(self, file: str) -> bytes:
        """The bytes of one file, after comparing their SHA-256 with the card's.

        Use the returned bytes, which are the ones that were hashed, instead of the path.
        """
        wanted = self.card.files.get(file)
        if wanted is None:
            raise EngineError(f"{file!r} is not a file of {self.card.name}", engine="weights")
        named = f"{file} of {self.card.name}"
        try:
            content = (self.path / file).read_bytes()
        except OSError as error:
            raise EngineError(f"{named} cannot be read", engine="weights") from error
        seen = sha256_hex(content)
        if seen != wanted:
            raise EngineError(f"{named} has SHA-256 {seen}, wanted {wanted}", engine="weights")
        return content

    def verify(self) -> None:
        """Compare every file with the card."""
        for file in self.card.files:
            self.read(file)


def names() -> list[str]:
    """Sorted names of the included models."""
    root = Path(str(files(__name__)))
    return sorted(path.parent.name for path in root.glob("*/card.json"))


def describe(name: str) -> Weights:
    """An included model's directory and card, without reading its large files."""
    if name not in names():
        raise EngineError(f"weights {name!r} are not included, only {names()}", engine="weights")
    return describe_directory(Path(str(files(__name__))) / name)


def describe_directory(path: Path) -> Weights:
    """Read the card of a directory, such as a recipe's output, without its large files."""
    try:
        card = Card.model_validate_json((path / "card.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise EngineError(f"{path.name}/card.json is not a card", engine="weights") from error
    return Weights(path, card)


def load(name: str) -> Weights:
    """An included model's directory and card, after verifying every file."""
    weights = describe(name)
    weights.verify()
    return weights
