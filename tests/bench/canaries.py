"""Canaries: facts that name their tenant, asked for by everybody else, by every way there is.

Twenty tenants of one store have facts in three places: in their own namespace, in one namespace
that all of them share (where only a fact's labels keep it from the others), and in the memory of
sessions. Random subjects ask random questions for the others' canaries: by vector, by word, by
filter, by id, along edges, in another's session, by an ETag that another one was given, and as a
whole question. Whatever comes back that another tenant's canary is in, is a leak.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from crp_integrations.engines.guards import guard_of
from crp_integrations.errors import CRPError, EnvelopeUnchanged, StoreError
from crp_integrations.fabric.records import Edge, Fact, Where
from crp_integrations.fabric.view import FabricView
from crp_integrations.guard.decisions import Guard, Subject
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Settings
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vectors import FloatRows, unit_rows

TENANTS: Final = 20
QUERIES: Final = 10_000

FACTS: Final = 6
SHARED: Final = "common"
# A whole question is the dearest way, so it is gone less often.
WHOLE: Final = 0.04
TOPICS: Final = ("vault", "ledger", "turbine", "harbour", "orchard", "archive")
_CANARY = re.compile(r"canary-(\d\d)-")


class _Words:
    """A bag of words in 64 dimensions; equal words, near vectors."""

    identity = "canary-words/64"
    dimensions = 64
    thresholds: dict[str, float] = {}

    def embed_passages(self, texts: Sequence[str]) -> FloatRows:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()) or [""]:
                row[int(sha256(word)[-4:], 16) % self.dimensions] += 1.0
        return unit_rows(rows)

    def embed_query(self, text: str) -> FloatRows:
        row: FloatRows = self.embed_passages([text])[0]
        return row


@dataclass
class Found:
    """What came of it.

    Attributes:
        asked: queries by way.
        leaks: leaks by way.
        own: canaries of the asker's own tenant that came back, which shows that the ways work.
    """

    asked: Counter[str] = field(default_factory=Counter)
    leaks: Counter[str] = field(default_factory=Counter)
    own: int = 0

    def as_json(self) -> dict[str, Any]:
        """For a report."""
        return {
            "queries": sum(self.asked.values()),
            "asked": dict(sorted(self.asked.items())),
            "leaks": sum(self.leaks.values()),
            "leaks_by_way": dict(sorted(self.leaks.items())),
            "own_canaries_seen": self.own,
        }


class Canaries:
    """Tenants with their canaries, in one store.

    Spec: Summit §Privacy & Security

    Args:
        guard: decides for everybody; None for the shipped policy.
        tenants: how many, at most 100.
        seed: of every choice.
    """

    def __init__(
        self, guard: Guard | None = None, *, tenants: int = TENANTS, seed: int = 0
    ) -> None:
        self._chance = random.Random(seed)
        self._count = tenants
        self._guard = guard or guard_of(GuardSettings(policy=True))
        self._settings = Settings.model_validate(
            {"key": "c0" * 32, "fabric": {"shared": (SHARED,), "maintain_on_open": False}}
        )
        store = MemoryStore()
        self._relays = [self._open(store, number) for number in range(tenants)]
        self._ids: list[list[str]] = [[] for _ in range(tenants)]
        self._sessions = [f"crp_sess_{number:016d}" for number in range(tenants)]
        self._etags: list[str] = [""] * tenants
        self._fill(store)

    def run(self, queries: int = QUERIES) -> Found:
        """Ask so many random queries."""
        found = Found()
        ways = sorted(self._ways)
        for _ in range(queries):
            chance = self._chance
            asker, victim = chance.randrange(self._count), chance.randrange(self._count)
            way = "question" if chance.random() < WHOLE else chance.choice(ways)
            found.asked[way] += 1
            came = (
                self._question(asker, victim) if way == "question" else self._by(way, asker, victim)
            )
            owners = {int(number) for text in came for number in _CANARY.findall(text)}
            found.leaks[way] += bool(owners - {asker})
            found.own += asker in owners
        return found

    # --- within ------------------------------------------------------------------------

    def _open(self, store: MemoryStore, number: int) -> Relay:
        subject = Subject(tenant=f"tenant{number:02d}", name="u", roles=("operator",))
        return Relay.open(
            store,
            subject=subject,
            guard=self._guard,
            embedder=_Words(),
            settings=self._settings,
        )

    def _fill(self, store: MemoryStore) -> None:
        shared = []
        for number, relay in enumerate(self._relays):
            tenant = relay.fabric.subject.tenant
            own, common, held = (
                [self._fact(number, place, one, tenant) for one in range(FACTS)]
                for place in ("own", "shared", "held")
            )
            relay.fabric.add(own)
            relay.fabric.hold(self._sessions[number], held)
            shared += common
            self._ids[number] = [fact.fact_id for fact in (*own, *common, *held)]
            relay.fabric.link(
                [Edge(source_fact=own[0].fact_id, target_fact=own[1].fact_id, kind="near")]
            )
        keeper = Relay.open(
            store, shared=SHARED, guard=guard_of(GuardSettings()), embedder=_Words(),
            settings=self._settings,
        )  # fmt: skip
        keeper.fabric.add(shared)
        ids = [fact.fact_id for fact in shared]
        keeper.fabric.link(
            [
                Edge(source_fact=left, target_fact=right, kind="near")
                for left, right in pairwise(ids)
            ]
        )
        for number, relay in enumerate(self._relays):
            answer = relay.ask(self._words(number), session_id=self._sessions[number])
            self._etags[number] = answer.envelope.etag

    def _fact(self, number: int, place: str, one: int, tenant: str) -> Fact:
        secret = f"canary-{number:02d}-{self._chance.getrandbits(40):010x}"
        text = (
            f"The {TOPICS[one]} of {tenant} is kept {place} under the word {secret} and nobody of "
            "another house is ever told of it."
        )
        return Fact(
            content=text,
            source_id=f"{tenant}-{place}",
            labels=("class:internal", f"tenant:{tenant}"),
        )

    def _words(self, number: int) -> str:
        topic = self._chance.choice(TOPICS)
        return f"Under which word does tenant{number:02d} keep the {topic}? canary-{number:02d}"

    def _by(self, way: str, asker: int, victim: int) -> list[str]:
        """The texts that come back."""
        # In another tenant's session as often as in the own one.
        session = self._sessions[self._chance.choice((asker, victim))]
        relay = self._relays[asker]
        view = relay.fabric.view(session)
        ids = self._ways[way](self, view, victim)
        shown = view.facts(ids)
        # An id is a leak by itself: it follows from what the fact says.
        theirs = set(ids) & set(self._ids[victim])
        leaked = [f"canary-{victim:02d}-"] if theirs and victim != asker else []
        return [*(fact.content for fact in shown), *leaked]

    def _nearest(self, view: FabricView, victim: int) -> list[str]:
        vector = view.embedder.embed_query(self._words(victim))
        return [hit.fact_id for hit in view.nearest(vector, 12)]

    def _worded(self, view: FabricView, victim: int) -> list[str]:
        return [hit.fact_id for hit in view.search_text(self._words(victim), 12)]

    def _filtered(self, view: FabricView, victim: int) -> list[str]:
        tenant = f"tenant{victim:02d}"
        return view.find(
            self._chance.choice(
                (Where(labels=(f"tenant:{tenant}",)), Where(sources=(f"{tenant}-shared",)), Where())
            )
        )

    def _known(self, view: FabricView, victim: int) -> list[str]:
        ids = self._ids[victim]
        return [brief.fact_id for brief in view.briefs(ids)]

    def _counted(self, view: FabricView, victim: int) -> list[str]:
        return sorted(view.token_counts("canary", self._ids[victim], lambda all_: [1] * len(all_)))

    def _vector_of(self, view: FabricView, victim: int) -> list[str]:
        one = self._chance.choice(self._ids[victim])
        try:
            view.vectors([one])
        except StoreError:
            return []
        return [one]

    def _linked(self, view: FabricView, victim: int) -> list[str]:
        edges = view.edges(self._ids[victim])
        return sorted({id_ for edge in edges for id_ in (edge.source_fact, edge.target_fact)})

    def _question(self, asker: int, victim: int) -> list[str]:
        relay = self._relays[asker]
        etag = self._chance.choice(("", self._etags[victim]))
        session = self._sessions[self._chance.choice((asker, victim))]
        try:
            answer = relay.ask(self._words(victim), session_id=session, if_match=etag or None)
        except EnvelopeUnchanged:
            # Its own one; another's is never known to it.
            return [] if victim == asker else [f"canary-{victim:02d}-"]
        except CRPError:
            return []
        return [answer.envelope.text, answer.text]

    _ways: Final[dict[str, Callable[[Canaries, FabricView, int], list[str]]]] = {
        "vector": _nearest,
        "word": _worded,
        "filter": _filtered,
        "id": _known,
        "count": _counted,
        "vector of an id": _vector_of,
        "edge": _linked,
    }
