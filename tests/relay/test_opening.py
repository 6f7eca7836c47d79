"""Opening a relay: what fails leaves nothing open."""

from __future__ import annotations

from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.errors import AccessDenied, ConfigError
from crp_integrations.guard.decisions import Subject
from crp_integrations.stores.sqlite import SqliteStore
from tests.doubles import HashEmbedder
from tests.relay.conftest import FACTS, KEY


class Other(HashEmbedder):
    identity = "other/32"


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The roots of the stores that were closed."""
    roots: list[Path] = []
    close = SqliteStore.close

    def watched(self: SqliteStore) -> None:
        roots.append(self.root)
        close(self)

    monkeypatch.setattr(SqliteStore, "close", watched)
    return roots


def test_a_relay_that_cannot_be_opened_leaves_no_store_open(
    tmp_path: Path, closed: list[Path]
) -> None:
    with Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY) as relay:
        relay.add([FACTS[0]])
    closed.clear()
    regions = {"eu": tmp_path / "eu"}
    with pytest.raises(ConfigError, match="embedder"):
        Relay.open(tmp_path / "kb", embedder=Other(), key=KEY, regions=regions)
    assert sorted(closed) == [tmp_path / "eu", tmp_path / "kb"]
    closed.clear()
    with pytest.raises(ConfigError, match="unheard"):
        Relay.open(tmp_path / "kb", embedder=HashEmbedder(), key=KEY, unheard=1)
    assert closed == [tmp_path / "kb"]


def test_a_store_of_the_callers_own_stays_open(tmp_path: Path, closed: list[Path]) -> None:
    store = SqliteStore(tmp_path / "kb")
    with pytest.raises(AccessDenied):
        Relay.open(store, subject=Subject(tenant=""), embedder=HashEmbedder(), key=KEY)
    assert closed == []
    with Relay.open(store, embedder=HashEmbedder(), key=KEY) as relay:
        relay.add([FACTS[0]])
        assert relay.fabric.size() == 1
