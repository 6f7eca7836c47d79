"""Something playable for a request: its windows, by its strategy."""

from __future__ import annotations

from crp_integrations.relay.records import Request
from crp_integrations.relay.strategies.continued import Continued
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.world import World


def composed(request: Request, world: World) -> Continued:
    """The windows of a request.

    Spec: related facts §7
    """
    return Continued(
        request,
        lambda one: Turn(one, world),
        world.settings.dispatch,
        world.settings.max_windows,
    )
