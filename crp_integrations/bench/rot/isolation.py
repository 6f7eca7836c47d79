"""Tenants in one store, each with facts that name a canary: whether one reaches another's context.

The same questions are asked by every tenant, so that a fact of another one would be the best there
is. What is looked for is the canary's own letters in the whole envelope, its reports included.
"""

from __future__ import annotations

from contextlib import ExitStack

from crp_integrations.bench.rot.data import Asked
from crp_integrations.bench.rot.scenarios import Bench, Point
from crp_integrations.bench.rot.systems import CRP
from crp_integrations.bench.selection.ours import MODEL
from crp_integrations.fabric.records import Fact
from crp_integrations.guard.decisions import Subject
from crp_integrations.relay.build import open_relay
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore

TENANTS = 20
# Questions that every tenant asks.
QUESTIONS = 10


def canary(tenant: int) -> str:
    """Letters that stand in the facts of one tenant alone."""
    return f"canary{sha256(f'tenant {tenant}')[7:23]}"


def tenants(bench: Bench) -> list[Point]:
    """Envelopes of each tenant that hold a canary of their own, or of another."""
    if CRP not in bench.systems:
        return []
    asked = bench.asked[:QUESTIONS]
    own = leaked = envelopes = 0
    with ExitStack() as opened:
        store = MemoryStore()
        relays = [
            opened.enter_context(
                open_relay(store, subject=Subject(tenant=f"t{n}"), embedder=bench.embedder)
            )
            for n in range(TENANTS)
        ]
        for number, relay in enumerate(relays):
            relay.add([_fact(one, number) for one in asked])
        for number, relay in enumerate(relays):
            others = [canary(other) for other in range(TENANTS) if other != number]
            for one in asked:
                made = relay.turn(one.query, model=MODEL, budget_tokens=bench.budget).preview()
                said = made.model_dump_json()
                own += canary(number) in said
                leaked += any(other in said for other in others)
                envelopes += 1
    return [
        {
            "system": CRP,
            "tenants": TENANTS,
            "questions": envelopes,
            "own": own / envelopes,
            "leaked": leaked / envelopes,
        }
    ]


def _fact(one: Asked, tenant: int) -> Fact:
    return Fact(content=f"{one.passage} Reference {canary(tenant)}.", source_id=f"file-{tenant}")
