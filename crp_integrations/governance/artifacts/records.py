"""What an artifact says of itself. It lies before the content, in one object that names both."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, ValidationError

from crp_integrations.errors import StoreDamaged
from crp_integrations.records import Record
from crp_integrations.seals import canonical, sha256, sha256_hex

TEXT = "text/plain; charset=utf-8"
PREFIX = "artifact:"
PATTERN = r"artifact:[0-9a-f]{32}"
_END = b"\n"
_DIGITS = 32


class Artifact(Record):
    """A text that is kept out of the prompt.

    Spec: Summit §Isolation Strategy

    Attributes:
        kind: `prose`, `log`, `search`, `data`, `summary`, or a tool's own word.
        media_type: that it is served with.
        checksum: `sha256:…` of the content.
        size: bytes of the content.
        sources: ids of items, facts, sources and sessions that it comes from, ascending. Erasing
            one of them erases the artifact.
        labels: access labels that the guard decides on, ascending.
        redacted: kinds of personal data that were taken out before it was kept, ascending.
    """

    SCHEMA = "artifact/1"

    kind: str = Field(min_length=1, max_length=64)
    media_type: str = Field(default=TEXT, pattern=r"^[\x20-\x7e]{1,120}$")
    checksum: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)
    sources: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    redacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Content:
    """An artifact with its bytes."""

    ref: str
    artifact: Artifact
    data: bytes

    @property
    def text(self) -> str:
        """The content as text; what is no UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


def packed(artifact: Artifact, data: bytes) -> tuple[str, bytes]:
    """The handle and the object of an artifact; equal ones get an equal handle."""
    whole = canonical(artifact.model_dump(mode="json")) + _END + data
    return PREFIX + sha256_hex(whole)[:_DIGITS], whole


def unpacked(ref: str, whole: bytes) -> Content:
    """The artifact of an object.

    Raises:
        StoreDamaged: the bytes are not those that the handle was made from.
    """
    head, _, data = whole.partition(_END)
    try:
        artifact = Artifact.model_validate_json(head)
    except ValidationError:
        raise StoreDamaged(f"{ref} does not read back; restore it from a copy") from None
    if PREFIX + sha256_hex(whole)[:_DIGITS] != ref or sha256(data) != artifact.checksum:
        raise StoreDamaged(f"the bytes of {ref} are other ones than were kept; restore them")
    return Content(ref, artifact, data)
