"""What ships is what the cards say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from crp_integrations import weights
from crp_integrations.errors import EngineError
from crp_integrations.weights import Card

FIELDS = {
    "name": "model",
    "version": "int8@1",
    "licence": "MIT",
    "origin": "somewhere",
    "origin_sha256": "0" * 64,
    "files": {"model.onnx": "1" * 64},
    "limits": "none known",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(weights.describe("minilm").path, tmp_path / "minilm")
    return tmp_path / "minilm"


@pytest.mark.parametrize("name", weights.names())
def test_every_shipped_file_has_its_cards_hash(name: str) -> None:
    found = weights.load(name)
    assert found.path.is_dir()
    assert found.card.files


@pytest.mark.parametrize("name", weights.names())
def test_every_model_ships_with_a_card_for_people_and_a_licence(name: str) -> None:
    found = weights.describe(name)
    text = (found.path / "CARD.md").read_text(encoding="utf-8")
    assert (found.path / "LICENSE").stat().st_size > 500
    assert found.card.licence in text
    assert found.card.origin_sha256 in text
    assert all(digest in text for digest in found.card.files.values())


@pytest.mark.parametrize("name", weights.names())
def test_nothing_ships_that_no_card_names(name: str) -> None:
    found = weights.describe(name)
    known = {*found.card.files, "card.json", "CARD.md", "LICENSE"}
    assert {path.name for path in found.path.iterdir()} - {"__pycache__"} == known


def test_the_embedders_card() -> None:
    card = weights.describe("minilm").card
    assert (card.name, card.version) == ("all-MiniLM-L6-v2", "int8@1")
    assert (card.licence, card.dimensions, card.passage) == ("Apache-2.0", 384, 256)
    assert set(card.thresholds) >= {"relevance_floor", "neighbour", "opening_coherence"}
    assert card.limits


def test_the_static_table_is_small() -> None:
    table = weights.describe("static")
    assert (table.path / "table.npy").stat().st_size <= 8_000_000


@pytest.mark.parametrize("name", weights.names())
def test_the_card_on_disk_is_what_the_record_writes(name: str) -> None:
    found = weights.describe(name)
    text = (found.path / "card.json").read_text(encoding="utf-8")
    assert text == found.card.model_dump_json(indent=2) + "\n"


def test_a_changed_file_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").write_bytes((copy / "tokenizer.json").read_bytes() + b" ")
    found = weights.describe_directory(copy)
    with pytest.raises(EngineError, match=r"tokenizer.json .* has SHA-256"):
        found.verify()
    assert found.read("model.onnx")


def test_a_missing_file_is_refused(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    with pytest.raises(EngineError, match="cannot be read"):
        weights.describe_directory(copy).verify()


def test_a_file_outside_the_card_is_not_read(copy: Path) -> None:
    with pytest.raises(EngineError, match="is not a file of"):
        weights.describe_directory(copy).read("CARD.md")


@pytest.mark.parametrize("name", ["nothing", "", ".", "..", "../weights/minilm", "minilm/"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match="are not included"):
        weights.load(name)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "weights-card/2"}'])
def test_a_file_that_is_no_card_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "card.json").write_text(content)
    with pytest.raises(EngineError, match="is not a card") as caught:
        weights.describe_directory(tmp_path)
    assert caught.value.__cause__ is not None


def test_a_directory_without_a_card_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not a card"):
        weights.describe_directory(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../model.onnx": "1" * 64}},
        {"files": {"model.onnx": "1" * 63}},
        {"origin_sha256": "Z" * 64},
        {"thresholds": {"neighbour": 1.5}},
        {"thresholds": {"neighbour": float("nan")}},
        {"dimensions": -1},
        {"more": 1},
    ],
)
def test_a_card_with_a_bad_field_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Card.model_validate(FIELDS | change)


def test_a_card_is_a_record_with_a_schema() -> None:
    card = Card.model_validate(FIELDS)
    written = json.loads(card.model_dump_json())
    assert written["schema"] == "weights-card/1"
    assert Card.model_validate(written) == card
