"""An embedder to move to, and a fabric whose vectors are moved; imported by other processes too."""

from __future__ import annotations

from typing import Any

import numpy as np

from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.ports import Store
from crp_integrations.fabric.search.vector_index import VectorIndex
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.vectors import unit_rows
from tests.doubles import FixedClock, HashEmbedder, WordCounter

KEYS = FixedKeyRing(b"k" * 32)
ACME = Subject(tenant="acme")


class Letters(HashEmbedder):
    """Counts letters into 32 dimensions; keeps what it embedded."""

    identity = "letters/32"
    dimensions = 32

    def __init__(self) -> None:
        self.texts: list[str] = []

    def embed_passages(self, texts: Any) -> Any:
        self.texts += texts
        rows = np.zeros((len(texts), 32), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for place, character in enumerate(text):
                row[(ord(character) * 31 + place) % 32] += 1.0
        return unit_rows(rows)


def fabric(store: Store, embedder: Any = None, **parts: Any) -> Fabric:
    chosen: dict[str, Any] = {
        "counter": WordCounter(),
        "clock": FixedClock(),
        "keyring": KEYS,
        "settings": FabricSettings(embed_slice=8, embed_workers=1),
    }
    return Fabric(store, embedder or HashEmbedder(), **{**chosen, **parts})


def sentence(number: int) -> str:
    return f"Passage {number} says in ten words or more that value{number} is {number} units."


def index_of(made: Fabric) -> VectorIndex:
    """The index of the present state of acme."""
    with made.begin("acme", write=False) as transaction:
        return made.namespace_state("acme").snapshot(transaction.facts).index
