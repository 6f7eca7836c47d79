"""A place for artifacts in memory, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.governance.compaction.records import ArtifactRef
from crp_integrations.seals import sha256


class Shelf:
    """Keeps texts by their hash."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.sources: dict[str, tuple[str, ...]] = {}

    def put(self, text: str, *, kind: str, sources: Sequence[str]) -> ArtifactRef:
        checksum = sha256(text)
        ref = f"artifact:{checksum.removeprefix('sha256:')[:20]}"
        self.texts[ref] = text
        self.sources[ref] = tuple(sources)
        return ArtifactRef(ref=ref, checksum=checksum, kind=kind, sources=tuple(sources))
