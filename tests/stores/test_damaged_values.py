"""A single value of a store's file that is not what was written: named, with the way out."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from crp_integrations import Relay
from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.records import Edge, Where
from tests.commands import here as here
from tests.doubles import HashEmbedder

TEXT = "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts."
MORE = "The Meridian reactor is operated by Northfield Energy under a licence until 2059."
DELETE_CHECKS = "PRAGMA ignore_check_constraints = 1"


@pytest.fixture
def kb(tmp_path: Path) -> Path:
    with opened(tmp_path / "kb") as relay:
        one, two, _ = relay.add([TEXT, MORE, f"{MORE} It may be longer."]).facts
        relay.fabric.link([Edge(source_fact=one, target_fact=two, kind="next")])
        relay.fabric.recluster()
    return tmp_path / "kb"


def opened(path: Path) -> Relay:
    untouched = {"maintain_on_open": False}
    return Relay.open(path, key="ab" * 32, embedder=HashEmbedder(), fabric=untouched)


def change(kb: Path, statement: str) -> None:
    (database,) = kb.rglob("*.sqlite")
    connection = sqlite3.connect(database)
    with connection:
        connection.execute(DELETE_CHECKS)
        connection.execute(statement)
    connection.close()


def search(namespace: Namespace) -> object:
    return namespace.briefs(namespace.find(Where()))


def read_edges(namespace: Namespace) -> object:
    return namespace.edges(namespace.find(Where()))


@pytest.mark.parametrize(
    ("statement", "reading", "told"),
    [
        ("UPDATE own SET value = 'abc' WHERE name = 'generation'", Namespace.stats, "'abc'"),
        ("UPDATE own SET value = 'abc' WHERE name = 'generation'", Namespace.generation, "'abc'"),
        ("UPDATE own SET value = 'x384' WHERE name = 'dimensions'", Namespace.size, "'x384'"),
        ("UPDATE own SET value = 'last' WHERE name = 'last_number'", "add", "'last'"),
        ("UPDATE own SET value = NULL WHERE name = 'last_number'", "add", "None"),
        ("UPDATE facts SET status = 'BOGUS'", "forget", "'BOGUS'"),
        ("UPDATE facts SET labels = '[1'", Namespace.size, "labels"),
        ("UPDATE facts SET metadata = '[\"a\": 1'", "filter", "metadata"),
        ("UPDATE facts SET importance_weight = 7.5", "export", "7.5"),
        ("UPDATE edges SET weight = 'heavy'", read_edges, "'heavy'"),
        ("REPLACE INTO settings VALUES ('epoch', 'often')", Namespace.stats, "'often'"),
        (
            "INSERT INTO settings VALUES ('prepared_at', 'yesterday')",
            Namespace.maintain,
            "'yesterday'",
        ),
        ("INSERT INTO settings VALUES ('changes_trimmed', 'few')", Namespace.maintain, "'few'"),
        (
            "REPLACE INTO settings VALUES ('reclustered_at', 'once')",
            Namespace.maintain,
            "'once'",
        ),
    ],
)
def test_a_damaged_value_is_named_with_the_way_out(
    kb: Path, statement: str, reading: str | Callable[[Namespace], object], told: str
) -> None:
    change(kb, statement)
    with opened(kb) as relay, pytest.raises(StoreDamaged) as caught:
        carry_out(relay.fabric, reading)
    assert told in str(caught.value)
    assert "crp fabric doctor" in str(caught.value)
    assert "reactor" not in str(caught.value)


def carry_out(namespace: Namespace, reading: str | Callable[[Namespace], object]) -> None:
    match reading:
        case "add":
            namespace.add([f"{TEXT} So it is said in the yearbook."])
        case "forget":
            namespace.forget(source=namespace.sources()[0].source_id)
        case "export":
            list(namespace.export())
        case "filter":
            namespace.find(Where(metadata={"a": 1}))
        case _:
            assert callable(reading)
            reading(namespace)


def test_the_doctor_finds_each_of_them_and_goes_on(kb: Path) -> None:
    change(kb, "UPDATE facts SET status = 'BOGUS' WHERE fact = 1")
    with opened(kb) as relay:
        findings = relay.fabric.doctor().findings
    assert any("has the status 'BOGUS'" in finding.problem for finding in findings)
    assert all(finding.remedy for finding in findings)
