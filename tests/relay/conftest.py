from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, HashEmbedder
from tests.relay.judges import MEASURED

KEY = "ab" * 32
FACTS = (
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
    "Unrelated gardens in the valley grow tulips and roses every spring.",
)

Opener = Callable[..., Relay]


@pytest.fixture
def open_relay() -> Opener:
    def opener(store: Any = None, **options: Any) -> Relay:
        # Most of these tests are of what the specifications do by themselves, and by their own
        # arithmetic; a judge's word needs the default.
        profile: dict[str, Any] = {} if "settings" in options else {"profile": "protocol"}
        if not options.keys() & {"settings", "judge", "dpe"}:
            profile["dpe"] = MEASURED
        return Relay.open(
            MemoryStore() if store is None else store,
            **{"embedder": HashEmbedder(), "key": KEY, "clock": NOON, **profile, **options},
        )

    return opener


@pytest.fixture
def relay(open_relay: Opener) -> Relay:
    made = open_relay()
    made.fabric.add(list(FACTS))
    return made
