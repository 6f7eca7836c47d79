"""Whether a window may be followed by another, and under which id."""

from __future__ import annotations

from crp_integrations.audit.records import WindowSeal
from crp_integrations.envelope.records import Envelope
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import AdviceWord


def continuation_id(envelope: Envelope, seal: WindowSeal, world: World) -> str | None:
    """A new continuation id, where a released window suggests another and may have one.

    Spec: CRP-SPEC-003 §10.3, §14.1

    Returns:
        None for the session's last window, and where no other window is suggested.
    """
    last = seal.window_number >= world.settings.max_windows
    if seal.outcome != "released" or last or not envelope.suggests(AdviceWord.CONTINUE):
        return None
    return world.ids.new("crp_cont_")
