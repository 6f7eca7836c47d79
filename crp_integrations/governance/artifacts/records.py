"""What an artifact says of itself. It lies before the content, in one object that names both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import Field, ValidationError

from crp_integrations.errors import StoreDamaged
from crp_integrations.records import Record
from crp_integrations.seals import canonical, handle_hmac, sha256

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


def packed(artifact: Artifact, data: bytes, key: bytes) -> tuple[str, bytes]:
    """The handle and the object of an artifact; equal ones get an equal handle under one key."""
    whole = canonical(artifact.model_dump(mode="json")) + _END + data
    return named(whole, key), whole


def named(whole: bytes, key: bytes) -> str:
    """The handle of an object; without the key nobody can tell which object a handle is of."""
    return PREFIX + handle_hmac(key, whole)[:_DIGITS]


def unpacked(ref: str, whole: bytes, keys: Iterable[bytes]) -> Content:
    """The artifact of an object.

    Args:
        keys: under one of which the handle was made.

    Raises:
        StoreDamaged: the bytes are not those that the handle was made from.
    """
    artifact = told(whole)
    if artifact is None:
        raise StoreDamaged(f"{ref} does not read back; restore it from a copy")
    data = whole.partition(_END)[2]
    if not any(named(whole, key) == ref for key in keys) or sha256(data) != artifact.checksum:
        raise StoreDamaged(f"the bytes of {ref} are other ones than were kept; restore them")
    return Content(ref, artifact, data)


def told(whole: bytes) -> Artifact | None:
    """What an object says of itself, genuine or not; None where it says nothing."""
    try:
        return Artifact.model_validate_json(whole.partition(_END)[0])
    except ValidationError:
        return None
