"""Memory items: every field, what is refused, the published schema, and the way to a fact."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.cli.app import app
from crp_integrations.errors import FactRejected
from crp_integrations.fabric.records import Fact
from crp_integrations.governance.memory_items import (
    TAXONOMY,
    MemoryItem,
    as_fact,
    item,
    of_fact,
    published_schema,
)
from crp_integrations.seals import sha256
from tests.governance.memories import TEXT, fields, memory

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas" / "memory-item.schema.json"
FIELDS = {
    "id", "type", "scope", "created_at", "updated_at", "ttl", "decay_fn", "confidence",
    "provenance", "security_label", "pii_flags", "embedding_ref", "graph_refs", "content",
    "summary",
}  # fmt: skip
FULL = {
    "type": "semantic",
    "category": "graph-edge",
    "scope": {"tenant": "acme", "org": "east", "project": "pumps", "session": "s1"},
    "ttl": "P90D",
    "decay_fn": "half-life@1:P30D",
    "provenance": {
        "source_uri": "https://example.test/a",
        "checksum": sha256('{"b":[1,2],"from":"n1"}'),
        "signer": "anna",
        "policy_tags": ["gdpr-6"],
    },
    "security_label": ["tenant:acme", "pii:low", "export:restricted"],
    "pii_flags": [{"field": "content.from", "category": "direct"}],
    "embedding_ref": "v1",
    "graph_refs": ["n1", "n2"],
    "content": {"from": "n1", "b": [1, 2]},
    "summary": {"text": "n1", "dropped": [{"start": 0, "end": 4}]},
    "valid_from": "2026-01-01T00:00:00Z",
    "valid_to": "2026-02-01T00:00:00Z",
    "supersedes": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
}


@pytest.mark.requirement("SUM-item-1")
def test_an_item_has_every_field_and_writes_what_it_reads() -> None:
    assert set(MemoryItem.model_fields) >= FIELDS
    one = memory(**FULL)
    again = MemoryItem.model_validate_json(one.model_dump_json())
    assert again == one
    told = one.model_dump(mode="json")
    assert told["schema"] == "memory-item/1"
    assert all(told[name] == value for name, value in FULL.items() if name not in ("provenance",))


@pytest.mark.requirement("SUM-item-2")
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"id": "17"}, "UUID"),
        ({"id": "0190A5B0-0000-7000-8000-000000000001"}, "UUID"),
        ({"confidence": 1.01}, "confidence"),
        ({"confidence": -0.01}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"scope": {"org": "east"}}, "scope.tenant"),
        ({"scope": {"tenant": ""}}, "scope.tenant"),
    ],
)
def test_ids_scopes_and_confidences_that_are_none_are_refused(
    wrong: dict[str, Any], named: str
) -> None:
    with pytest.raises(FactRejected, match=named):
        memory(**wrong)
    assert memory(id="01ARZ3NDEKTSV4RRFFQ69G5FAV").id.startswith("01AR")
    assert memory(**FULL).scope.model_dump() == FULL["scope"]


@pytest.mark.requirement("SUM-item-3")
def test_provenance_holds_source_checksum_signer_and_tags() -> None:
    one = memory(**FULL).provenance
    assert (one.source_uri, one.signer, one.policy_tags) == (
        "https://example.test/a", "anna", ("gdpr-6",)
    )  # fmt: skip
    assert one.checksum == sha256(memory(**FULL).text)
    with pytest.raises(FactRejected, match="checksum"):
        memory(provenance={"source_uri": "a", "checksum": sha256("another text")})
    with pytest.raises(FactRejected, match="source_uri"):
        memory(provenance={"signer": "anna"})


@pytest.mark.requirement("SUM-item-4")
def test_labels_are_names_with_values_and_pii_is_marked_by_field() -> None:
    one = memory(**FULL)
    assert one.security_label == ("tenant:acme", "pii:low", "export:restricted")
    assert as_fact(one).labels == ("export:restricted", "pii:low", "tenant:acme")
    assert [(flag.field, flag.category) for flag in one.pii_flags] == [("content.from", "direct")]
    for labels, named in (
        (["secret"], "name:value"),
        (["tenant:other"], "another tenant"),
        ([], "security_label"),
    ):
        with pytest.raises(FactRejected, match=named):
            memory(security_label=labels)


@pytest.mark.requirement("SUM-item-6")
def test_content_is_text_or_json_and_a_summary_points_to_what_it_drops() -> None:
    one = memory(**FULL)
    assert one.text == '{"b":[1,2],"from":"n1"}'
    assert one.summary is not None
    assert [one.text[cut.start : cut.end] for cut in one.summary.dropped] == ['{"b"']
    assert memory().summary is None
    for wrong in ({"start": 3, "end": 3}, {"start": 0, "end": len(TEXT) + 1}):
        with pytest.raises(FactRejected, match=r"span|summary"):
            memory(summary={"text": "short", "dropped": [wrong]})


@pytest.mark.requirement("SUM-memory-1")
@pytest.mark.requirement("SUM-memory-2")
@pytest.mark.requirement("SUM-memory-3")
def test_each_type_covers_its_categories_and_no_others() -> None:
    assert set(TAXONOMY["episodic"]) == {"transcript", "user-action", "tool-output"}
    assert set(TAXONOMY["procedural"]) == {"playbook", "tool-recipe", "policy-step"}
    assert set(TAXONOMY["semantic"]) == {
        "graph-node", "graph-edge", "document", "embedding", "tool-spec"
    }  # fmt: skip
    every = {(kind, category) for kind, names in TAXONOMY.items() for category in names}
    for kind in TAXONOMY:
        for _, category in sorted(every):
            if (kind, category) in every:
                assert memory(type=kind, category=category).category == category
            else:
                with pytest.raises(FactRejected, match="category"):
                    memory(type=kind, category=category)
    with pytest.raises(FactRejected, match="type"):
        memory(type="declarative")


@given(
    st.sampled_from(sorted(TAXONOMY)),
    st.one_of(
        st.text(min_size=1).filter(lambda text: bool(text.strip())),
        st.dictionaries(st.text(), st.integers() | st.text() | st.booleans(), max_size=4),
        st.lists(st.integers(-(2**53) + 1, 2**53 - 1), max_size=4),
    ),
    st.sampled_from([None, "linear@1:P2D"]),
)
def test_an_item_comes_back_from_its_fact_as_it_was(kind: str, content: Any, fading: Any) -> None:
    try:
        one = item(fields(type=kind, content=content, decay_fn=fading))
    except (FactRejected, ValueError):
        return
    assert of_fact(as_fact(one)) == one


def test_the_whole_item_comes_back_from_its_fact() -> None:
    one = memory(**FULL)
    fact = as_fact(one)
    assert of_fact(fact) == one
    assert (fact.ttl, fact.metadata["decay_fn"]) == ("P90D", "half-life@1:P30D")
    assert of_fact(fact.changed(metadata={})) is None


def test_a_refusal_shows_no_value() -> None:
    with pytest.raises(FactRejected) as caught:
        memory(content=["my secret"], confidence="my secret", ids="my secret")
    assert "my secret" not in str(caught.value)
    assert "confidence" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ({"my card": 4111111111111111_4111111111111111}, "4111111111111111"),
        ({"my card": float("nan")}, "nan"),
        ({"my secret": object()}, "my secret"),
        ({"a": {"my secret": [b"x"]}}, "my secret"),
        ("my secret \ud800", "my secret"),
        ({"my secret": "\ud800"}, "my secret"),
    ],
)
def test_content_that_cannot_be_written_is_refused_and_not_told(content: Any, value: str) -> None:
    with pytest.raises(FactRejected, match="content") as caught:
        memory(content=content)
    assert value not in str(caught.value)


@pytest.mark.requirement("SUM-write-4")
@pytest.mark.parametrize("confidence", [True, "0.5", "1", float("nan")])
def test_a_confidence_is_a_number_as_the_schema_says(confidence: Any) -> None:
    with pytest.raises(FactRejected, match="confidence"):
        memory(confidence=confidence)
    assert memory(confidence=1).confidence == 1.0


@pytest.mark.requirement("SUM-write-1")
def test_the_schema_is_published_and_reads_what_items_write() -> None:
    assert json.loads(PUBLISHED.read_text(encoding="utf-8")) == published_schema(MemoryItem)
    checker = pytest.importorskip("jsonschema").Draft202012Validator(published_schema(MemoryItem))
    for one in (memory(), memory(**FULL)):
        assert list(checker.iter_errors(json.loads(one.model_dump_json()))) == []
    assert list(checker.iter_errors(fields(security_label=[])))
    assert list(checker.iter_errors(fields(confidence=2)))


@pytest.mark.requirement("SUM-write-4")
def test_malformed_or_unlabelled_memory_fails_the_build(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text(json.dumps(fields(1)) + "\n" + memory(2, **FULL).model_dump_json() + "\n")
    bare = {key: value for key, value in fields(3).items() if key != "security_label"}
    bad.write_text(
        "\n".join([json.dumps(fields(1)), json.dumps(bare), json.dumps({"id": 1}), "[]", "{"])
    )
    passed = CliRunner().invoke(app, ["memory", "lint", str(good)])
    assert (passed.exit_code, passed.output) == (0, "2 items, 0 refused\n")
    failed = CliRunner().invoke(app, ["memory", "lint", str(good), str(bad)])
    assert failed.exit_code == 1
    lines = failed.output.splitlines()
    assert lines[0].startswith(f"{bad}:2: memory item is refused: security_label")
    assert [line.partition(": ")[0][-1] for line in lines[1:4]] == ["3", "4", "5"]
    assert lines[-1] == "7 items, 4 refused"
    assert TEXT not in failed.output


def test_lint_reads_lines_as_json_ends_them_and_survives_deep_ones(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    file = tmp_path / "items.jsonl"
    parted = json.dumps(fields(1, content=f"{TEXT}\u2028{TEXT}"), ensure_ascii=False)
    file.write_text(f"{parted}\n{'[' * 100_000}\n", encoding="utf-8")
    said = CliRunner().invoke(app, ["memory", "lint", str(file)])
    assert said.exit_code == 1
    assert said.output == f"{file}:2: is not a JSON object\n2 items, 1 refused\n"


@pytest.mark.parametrize("value", ["2020", "20260525", " 5 ", "1e3", 1_700_000_000, 1.5, True])
@pytest.mark.parametrize("field", ["created_at", "updated_at", "valid_from", "valid_to"])
def test_a_number_is_no_time(field: str, value: Any) -> None:
    # It was read as seconds since 1970: the year 2020 as half an hour after midnight.
    with pytest.raises(FactRejected) as caught:
        item(fields() | {field: value})
    wanted = "is a number, wanted a time such as 2026-05-25T10:00:00Z"
    assert str(caught.value) == f"memory item is refused: {field}: {wanted}"
    with pytest.raises(ValueError, match=wanted):
        Fact(content=TEXT, valid_from=value)


@pytest.mark.parametrize("odd", [None, "an item", [1], 5], ids=type)
def test_what_has_no_fields_is_refused(odd: Any) -> None:
    with pytest.raises(FactRejected, match=rf"it is of type {type(odd).__name__}, wanted its fi"):
        item(odd)
