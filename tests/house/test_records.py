"""Every record that crosses a boundary is a pydantic model that refuses unknown fields."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

from crp_integrations.records import Part, Record
from tests.house.imports import OWN, files, room_of_file

FRAMEWORKS = ("langchain", "langgraph", "llama_index", "litellm")


def _modules() -> Iterator[str]:
    for file in files():
        if room_of_file(file):
            yield f"{OWN}." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _models() -> list[type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for name in _modules():
        module = importlib.import_module(name)
        for _, member in inspect.getmembers(module, inspect.isclass):
            if issubclass(member, BaseModel) and member.__module__.startswith(OWN):
                found[f"{member.__module__}.{member.__qualname__}"] = member
    return [found[name] for name in sorted(found)]


@pytest.fixture(scope="module")
def models() -> list[type[BaseModel]]:
    """Every pydantic model of the package; the adapters' frameworks are imported for it."""
    return _models()


@pytest.fixture(scope="module")
def parts(models: list[type[BaseModel]]) -> list[type[Part]]:
    """The parts that define something of their own."""
    return [model for model in models if issubclass(model, Part)]


@pytest.fixture(scope="module")
def records(parts: list[type[Part]]) -> list[type[Record]]:
    """The parts that stand alone on the wire or on disk."""
    return [part for part in parts if issubclass(part, Record) and part is not Record]


@pytest.mark.requirement("CARD-13")
def test_every_part_refuses_unknown_fields_and_changes(parts: list[type[Part]]) -> None:
    assert len(parts) > 10
    for model in parts:
        assert model.model_config.get("extra") == "forbid", model
        assert model.model_config.get("frozen") is True, model
        if model is Record:
            continue
        with pytest.raises(ValueError, match="no_field_is_called_this"):
            model.model_validate({"no_field_is_called_this": 1})


@pytest.mark.requirement("CARD-13")
def test_every_pydantic_model_is_a_part_or_the_settings_tree(
    models: list[type[BaseModel]],
) -> None:
    # Adapters subclass a framework's own pydantic class, which is no record of ours.
    strangers = [
        model
        for model in models
        if not issubclass(model, Part)
        and not any(base.__module__.startswith(FRAMEWORKS) for base in model.__mro__)
    ]
    assert {model.__name__ for model in strangers} <= {"Settings"}
    assert all(model.model_config.get("extra") == "forbid" for model in strangers)


@pytest.mark.requirement("CARD-13")
def test_a_record_names_its_schema_and_refuses_a_newer_or_foreign_one(
    records: list[type[Record]],
) -> None:
    assert len(records) > 5
    for model in records:
        name, _, number = model.SCHEMA.partition("/")
        assert name, model
        assert int(number) >= 1, model
        with pytest.raises(ValueError, match="is newer than"):
            model.model_validate({"schema": f"{name}/{int(number) + 1}"})
        with pytest.raises(ValueError, match="is not"):
            model.model_validate({"schema": f"not-{name}/{number}"})


def test_no_two_records_share_a_schema_name(records: list[type[Record]]) -> None:
    names = [model.SCHEMA for model in records]
    assert sorted(names) == sorted(set(names))
