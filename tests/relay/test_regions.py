"""Residency: a region's data are read and written in its own store, and nowhere else."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.fabric.fabric import Fabric
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.settings import FabricSettings
from crp_integrations.guard.decisions import Subject
from crp_integrations.headers.codec import parse_request
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import FixedClock, HashEmbedder, ScriptedModel, WordCounter
from tests.relay.conftest import FACTS, Opener

QUESTION = "When was the Meridian reactor commissioned?"
SESSION = "crp_sess_7f3a9bc2d4e1f083"
HERE = FACTS[0]
EUROPE = "The Meridian reactor in Europe was commissioned on 12 June 2020 by Northfield."
AMERICA = "The Meridian reactor in America was commissioned on 30 July 2022 by Northfield."


@pytest.fixture
def relay(open_relay: Opener, tmp_path: Path) -> Relay:
    made = open_relay(tmp_path / "kb", regions={"eu": tmp_path / "eu", "us": tmp_path / "us"})
    made.add([HERE])
    made.add([EUROPE], residency="eu")
    made.add([AMERICA], residency="US")
    return made


def contents(relay: Relay, **asking: str) -> list[str]:
    envelope = relay.turn(QUESTION, budget_tokens=400, **asking).preview()  # type: ignore[arg-type]
    return [fact.content for fact in envelope.facts]


def holding(root: Path, text: str) -> set[str]:
    """The folders below a root in whose files a text stands."""
    return {
        path.relative_to(root).parts[0]
        for path in root.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    }


@pytest.mark.requirement("009-7.2-4")
def test_a_question_with_a_residency_reads_that_region_alone(relay: Relay) -> None:
    assert contents(relay) == [HERE]
    assert contents(relay, residency="eu") == [EUROPE]
    header = parse_request({"CRP-Compliance-Data-Residency": "US"})
    assert contents(relay, residency=str(header.residency)) == [AMERICA]
    held = relay.region("eu").find(Where())
    assert len(relay.region("eu").facts(held)) == 1
    assert relay.fabric.facts(held) == relay.region("us").facts(held) == []


@pytest.mark.requirement("009-7.2-5")
def test_what_is_written_for_a_region_lies_in_its_store_alone(relay: Relay, tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text(f"{EUROPE} It has a blue door.", encoding="utf-8")
    relay.ingest(page, residency="eu")
    page.unlink()
    relay.close()
    assert holding(tmp_path, "in Europe") == {"eu"}
    assert holding(tmp_path, "blue door") == {"eu"}
    assert holding(tmp_path, "in America") == {"us"}
    assert holding(tmp_path, "4 March 2019") == {"kb"}


@pytest.mark.requirement("009-7.2-5")
def test_a_regions_window_is_sealed_and_journalled_there(relay: Relay) -> None:
    first = relay.ask(QUESTION, session_id=SESSION, residency="eu")
    second = relay.ask(QUESTION, session_id=SESSION, residency="EU")
    assert (first.window_number, second.window_number) == (1, 2)
    assert "residency=eu" in first.report.flags
    assert relay.verify(residency="eu").windows == 2
    assert relay.verify().windows == 0
    assert relay.verify(residency="us").windows == 0
    # The use is counted there too.
    (fact,) = relay.region("eu").facts([fact.fact_id for fact in first.envelope.facts])
    assert fact.access_count == 2
    # Each region has its own chain of one session, and no two windows share an id.
    here = relay.ask(QUESTION, session_id=SESSION)
    there = relay.ask(QUESTION, session_id=SESSION, residency="us")
    assert (here.window_number, there.window_number) == (1, 1)
    assert len({a.window_id for a in (first, second, here, there)}) == 4


@pytest.mark.requirement("009-7.2-5")
def test_a_failed_window_is_sealed_in_its_region(open_relay: Opener, tmp_path: Path) -> None:
    relay = open_relay(
        tmp_path / "kb",
        regions={"eu": tmp_path / "eu"},
        models=ScriptedModel(RuntimeError("the line is cut")),
    )
    relay.add([EUROPE], residency="eu")
    with pytest.raises(RuntimeError):
        relay.ask(QUESTION, residency="eu", model="any/model")
    assert (relay.verify(residency="eu").windows, relay.verify().windows) == (1, 0)


@pytest.mark.requirement("009-7.2-4", "009-7.2-5")
def test_a_relay_can_belong_to_a_region(open_relay: Opener, tmp_path: Path) -> None:
    places = {"eu": tmp_path / "eu", "us": tmp_path / "us"}
    relay = open_relay(tmp_path / "kb", regions=places, residency="eu")
    relay.fabric.add([EUROPE])
    relay.add([AMERICA], residency="us")
    assert relay.fabric.residency == "eu"
    assert contents(relay) == [EUROPE]
    assert contents(relay, residency="us") == [AMERICA]
    assert contents(relay, residency="") == []
    relay.ask(QUESTION)
    assert relay.verify().windows == 1
    assert relay.verify(residency="").windows == 0


@pytest.mark.requirement("009-7.2-1", "009-7.2-4")
def test_what_a_session_holds_stays_in_its_region(relay: Relay) -> None:
    text = "The Meridian reactor was visited by inspector Ada Quill on 9 May 2021."
    relay.add([text], session_id=SESSION, cache="no-store", residency="eu")
    assert text in contents(relay, session_id=SESSION, residency="eu")
    assert text not in contents(relay, session_id=SESSION, residency="us")
    assert text not in contents(relay, session_id=SESSION)
    assert relay.end_session(SESSION) == 1
    assert text not in contents(relay, session_id=SESSION, residency="eu")


def test_an_unknown_region_is_refused_with_those_that_there_are(
    relay: Relay, open_relay: Opener, tmp_path: Path
) -> None:
    words = r"residency 'moon' is not one of the regions \['eu', 'us'\]"
    for call in (
        lambda: relay.ask(QUESTION, residency="moon"),
        lambda: relay.add([HERE], residency="moon"),
        lambda: relay.ingest([], residency="moon"),
        lambda: relay.verify(residency="moon"),
        lambda: relay.region("moon"),
    ):
        with pytest.raises(RequestError, match=words):
            call()
    with pytest.raises(RequestError, match=r"'eu' is not one of the regions \[\]"):
        open_relay(residency="eu")


def test_regions_on_disk_need_a_key_that_stays(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a key"):
        Relay.open(None, regions={"eu": tmp_path / "eu"}, embedder=HashEmbedder())


@pytest.mark.requirement("009-7.2-4", "009-9.2-1")
def test_a_region_has_shared_namespaces_of_its_own() -> None:
    fabric = Fabric(
        MemoryStore(),
        HashEmbedder(),
        WordCounter(),
        FixedClock(),
        FixedKeyRing(b"k" * 32),
        settings=FabricSettings(shared=("law",)),
        regions={"eu": MemoryStore()},
    )
    (law,) = fabric.bind_shared("law", residency="eu").add([EUROPE]).facts
    acme = Subject(tenant="acme")
    assert [fact.fact_id for fact in fabric.bind(acme, residency="eu").facts([law])] == [law]
    assert fabric.bind(acme).facts([law]) == []
    assert fabric.regions == ["eu"]


def test_a_region_is_made_of_the_same_parts() -> None:
    # Whatever a fabric is handed, its regions are handed too, but for the store.
    parts: dict[str, Any] = {
        name: object()
        for name in inspect.signature(Fabric).parameters
        if name not in {"store", "regions", "elsewhere"}
    }
    parts["settings"] = FabricSettings(query_terms=3)
    outside: dict[str, Any] = {"": object(), "EU": object()}
    fabric = Fabric(MemoryStore(), **parts, regions={"EU": MemoryStore()}, elsewhere=outside)
    region = fabric.region("eu")
    assert (fabric.elsewhere, region.elsewhere) == (outside[""], outside["EU"])
    assert {name: getattr(region, name) for name in parts} == parts
    assert region.store is not fabric.store
    assert region.session_memory is not fabric.session_memory


@pytest.mark.parametrize("cache", ["no-store", "max-age=60"])
def test_a_receipt_is_read_in_its_own_region_alone(
    open_relay: Opener, tmp_path: Path, cache: str
) -> None:
    """One that is in memory alone, as one in the store."""
    made = open_relay(models=ScriptedModel(EUROPE), regions={"eu": tmp_path / "eu"})
    made.add([EUROPE], residency="eu")
    answer = made.ask(QUESTION, model="any/model", session_id=SESSION, residency="eu", cache=cache)
    for name in (answer.receipt_id, answer.window_id):
        assert made.receipt(name, residency="eu") is not None
        assert made.receipt(name) is None
    assert made.receipts(residency="eu").ids() == [answer.receipt_id]
    assert made.receipts().ids() == []
    made.end_session(SESSION)
    kept = [] if cache == "no-store" else [answer.receipt_id]
    assert made.receipts(residency="eu").ids() == kept
