"""What headers tell, as far as that is a choice."""

from __future__ import annotations

from typing import Final

from pydantic import field_validator

from crp_integrations.records import Part

# What a template of a URI may hold in braces.
PLACES: Final = ("session_id", "window_id")


class HeaderSettings(Part):
    """What response headers tell.

    Attributes:
        show_community: whether `CRP-Memory-CKF-Community` is sent; turn it off where the domain of
            a question is itself sensitive (CRP-SPEC-003 §16.3).
        report_uri: where a window's report is read (CRP-SPEC-005 §15.4), with `{window_id}` and
            `{session_id}` in it: an absolute URI, or a path on the gateway; empty sends none.
        trail_uri: where a session's trail is read, in the same way.
    """

    show_community: bool = True
    report_uri: str = "/crp/windows/{window_id}/report"
    trail_uri: str = ""

    @field_validator("report_uri", "trail_uri")
    @classmethod
    def _fits(cls, value: str) -> str:
        try:
            value.format(**dict.fromkeys(PLACES, "x"))
        except (KeyError, IndexError, ValueError):
            raise ValueError(
                f"{value!r:.80} has other braces than {{{PLACES[0]}}} and {{{PLACES[1]}}}"
            ) from None
        return value
