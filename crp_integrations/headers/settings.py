"""What headers tell, as far as that is a choice."""

from __future__ import annotations

from crp_integrations.records import Part


class HeaderSettings(Part):
    """What response headers tell.

    Attributes:
        show_community: whether `CRP-Memory-CKF-Community` is sent; turn it off where the domain of
            a question is itself sensitive (CRP-SPEC-003 §16.3).
    """

    show_community: bool = True
