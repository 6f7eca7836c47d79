"""Tables, lists, code and JSON: what they say is checked, what only lays them out is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.blocks import blocks, code_of, counting_cells
from crp_integrations.language.claims import segment
from tests.dpe.helpers import check, kinds
from tests.dpe.texts import HARBOUR

SERVICE = "The service keeps data for 30 days. The limit is 500 requests."


@pytest.mark.parametrize("head", ["No.", "#", "Nr", "Step", "", "**No.**"])
def test_the_numbers_of_the_rows_are_no_figures(head: str) -> None:
    sentences = HARBOUR.split(". ")[:3]
    rows = "".join(f"| {n} | {text.rstrip('.')}. |\n" for n, text in enumerate(sentences, 1))
    answer = f"| {head} | Statement |\n| --- | --- |\n{rows}"
    report = check(answer, [HARBOUR])
    assert kinds(report) == []
    assert sum(claim.claim_type.value == "FACTUAL" for claim in report.claims) >= len(sentences)


def test_a_column_that_measures_is_no_count() -> None:
    table = "| Rank | Name |\n|---|---|\n| 1 | Ann |\n| 2 | Bo |"
    assert counting_cells(table, blocks(table)) == {}
    uneven = "| No. | Name |\n|---|---|\n| 4 | Ann |\n| 2 | Bo |"
    assert counting_cells(uneven, blocks(uneven)) == {}


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("| Retention | Limit |\n|---|---|\n| 90 days | 500 requests |", ["90 days"]),
        ("| Retention | Limit |\n|---|---|\n| 30 days | 500 requests |", []),
        ("| No. | Limit |\n|---|---|\n| 1 | 800 requests |", ["800"]),
        ("1. The service keeps data for 30 days.\n2. The limit is 500 requests.", []),
        ("1) The service keeps data for 90 days.\n2) The limit is 500 requests.", ["90 days"]),
        ('{"data_retention": "30 days", "limit": 500}', []),
        ('{"data_retention": "90 days", "limit": 500}', ["90 days"]),
        ('```json\n{"data_retention": 90, "Limit": 500}\n```', ["90"]),
        ("```python\nLIMIT = 500\nretries = 7\nfor i in range(12):\n    send(i)\n```", []),
        ("```python\nLIMIT = 500  # the service keeps data for 90 days\n```", ["90 days"]),
        ("```python\nprint('The service keeps data for 90 days')\n```", ["90 days"]),
        ("Key\tLimit\nRequests\t500\n", []),
    ],
)
def test_cells_and_values_are_checked_and_keys_and_counts_are_not(
    answer: str, wrong: list[str]
) -> None:
    found = [f for f in check(answer, [SERVICE]).findings if f.stage == 3]
    assert [answer[f.start : f.end] for f in found] == wrong


@given(st.text(alphabet="|-`#\n 1a\"':{}/*", max_size=120))
def test_any_layout_is_read_and_stays_within_the_text(text: str) -> None:
    for start, end in counting_cells(text, blocks(text)).items():
        assert 0 <= start <= end <= len(text)
    code = code_of(text)
    assert list(code.starts) == sorted(code.starts)
    assert all(low <= high for low, high in zip(code.starts, code.ends, strict=True))
    ends = [claim.end for claim in segment(text)]
    assert ends == sorted(ends)
