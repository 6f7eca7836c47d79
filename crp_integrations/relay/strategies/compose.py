"""Something playable for a request: its windows, by its strategy."""

from __future__ import annotations

from typing import TypeAlias

from crp_integrations.relay.records import Request
from crp_integrations.relay.strategies.choose import chosen
from crp_integrations.relay.strategies.continued import Continued
from crp_integrations.relay.strategies.parts import Parts
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.world import World
from crp_integrations.vocabulary import Strategy

Played: TypeAlias = Continued | Parts
# Strategies that answer the parts of a question in windows of their own.
IN_PARTS = frozenset({Strategy.HIERARCHICAL, Strategy.FAN_OUT, Strategy.FAN_IN})


def composed(request: Request, world: World) -> Played:
    """The windows of a request.

    Spec: related facts §7
    """
    strategy = chosen(request.strategy, request.accept_strategies)
    if strategy is not request.strategy:
        request = request.changed(strategy=strategy)
    settings = world.settings.dispatch
    if strategy in IN_PARTS and not request.continuation_ids:
        most = min(settings.hierarchical_parts, world.settings.sessions.graph.fan_out)
        return Parts(request, lambda one, place: Turn(one, world, place), most)
    return Continued(request, lambda one: Turn(one, world), settings, world.settings.max_windows)
