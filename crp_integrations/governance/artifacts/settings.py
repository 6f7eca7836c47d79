"""Every number of artifacts."""

from __future__ import annotations

from pydantic import Field

from crp_integrations.records import Part


class ArtifactSettings(Part):
    """Where artifacts lie and how long an address opens one.

    Spec: Summit §Privacy & Security

    Attributes:
        place: address of an object store, such as `s3://bucket/prefix`; empty for a folder beside
            the store's files, or memory for a store in memory. Regions keep theirs in their own
            folders.
        url_seconds: that an address holds when its maker names no other time.
        longest_url_seconds: that an address may hold at most.
        clock_skew_seconds: by which the clocks of machines that open addresses may differ; so
            long a used address is remembered after it has expired.
        most_bytes: of one artifact.
    """

    place: str = ""
    url_seconds: int = Field(default=300, ge=1)
    longest_url_seconds: int = Field(default=3_600, ge=1)
    clock_skew_seconds: int = Field(default=300, ge=0)
    most_bytes: int = Field(default=50_000_000, ge=1)
