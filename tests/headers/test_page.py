"""The page on headers says what is so."""

from __future__ import annotations

from crp_integrations.headers.codec import DOWN, REQUEST, UP, parse_request, write_request
from crp_integrations.headers.grammar import LIMITS, MOST_CHARACTERS
from tests.requirements.rows import ROOT

PAGE = ROOT / "docs" / "reference" / "headers.md"


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for number in {MOST_CHARACTERS, *LIMITS.values()}:
        assert f"{number:,}" in text
    assert len(DOWN) == len(UP) == 6


def test_the_page_lists_every_request_header_with_a_value_that_is_taken() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.split("## What a caller may ask")[1].split("##")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if line.startswith("| `CRP-")
    ]
    listed = {}
    for name, value, _ in rows:
        said = value.split("`")[1]
        listed[name.strip("`")] = said + "0" * 64 if "hexadecimal" in value else said
    assert set(listed) == {field.name for field in REQUEST.values()}
    for name, value in listed.items():
        if "…" not in value:
            assert set(write_request(parse_request({name: value}))) == {name}
