"""What a sealed window says in its response headers, of itself and of its session."""

from __future__ import annotations

from dataclasses import dataclass

from crp_integrations.envelope.records import Envelope
from crp_integrations.headers.records import CacheOutcome
from crp_integrations.headers.render import render
from crp_integrations.relay.attempts import Attempts
from crp_integrations.relay.close import Closed
from crp_integrations.relay.entering import Entered
from crp_integrations.relay.passes import Passes
from crp_integrations.relay.records import Request
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import AdviceWord


@dataclass(frozen=True, slots=True)
class Said:
    """Everything that the headers of a window are made of."""

    envelope: Envelope
    closed: Closed
    entered: Entered | None
    request: Request
    attempts: Attempts
    passes: Passes
    cache_status: CacheOutcome | None


def said(about: Said, world: World) -> dict[str, str]:
    """The response headers of a window.

    Spec: CRP-SPEC-003 §15, CRP-SPEC-005 §20
    """
    closed = about.closed
    number = closed.seal.window_number
    return render(
        about.envelope,
        closed.report,
        session_id=closed.seal.session_id,
        window_number=number,
        window_total=max(number, world.settings.max_windows),
        seal=closed.seal,
        window_hmac=closed.window_hmac,
        cache_status=about.cache_status,
        continuation_id=_suggested(about),
        settings=world.settings.headers,
    )


def _suggested(about: Said) -> str | None:
    """The continuation id, where another window is suggested.

    Spec: CRP-SPEC-003 §10.3, §14.1; CRP-SPEC-005 §10.3
    """
    wanted = about.envelope.suggests(AdviceWord.CONTINUE)
    wanted = wanted or about.closed.report.quality.completeness.recommendation == "continue"
    return about.closed.left.node.continuation_id or None if wanted else None
