"""A loopback deployment that answers well, and a relay that knows the facts about the plants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crp_integrations import Relay
from tests.adapters.litellm_deployments import FACTS, GOOD
from tests.doubles import HashEmbedder
from tests.servers import Double, openai_double


@pytest.fixture
def server() -> Iterator[Double]:
    with openai_double(text=GOOD) as double:
        yield double


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay.open(embedder=HashEmbedder()) as opened:
        opened.fabric.add(FACTS)
        yield opened
