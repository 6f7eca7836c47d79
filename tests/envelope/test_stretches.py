"""Stretches as columns: in everything like the tuple of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.envelope.candidates import ScoredSpan, ScoredSpans, span_scores

ROWS = st.lists(st.tuples(*(st.integers(0, 1_000_000) for _ in range(3))), max_size=6)


@given(ROWS, ROWS)
def test_they_look_and_compare_as_a_tuple(rows: list[tuple[int, int, int]], others: object) -> None:
    plain = tuple(ScoredSpan(*row) for row in rows)
    late = (
        ScoredSpans(*(list(column) for column in zip(*rows, strict=True)))
        if rows
        else ScoredSpans((), (), ())
    )
    assert (len(late), repr(late), hash(late)) == (len(plain), repr(plain), hash(plain))
    assert late == plain and plain == late
    assert [late[at] for at in range(len(rows))] == list(plain) == list(late)
    assert late[1:] == plain[1:]
    assert list(span_scores(late)) == list(span_scores(plain))
    given_others = tuple(ScoredSpan(*row) for row in others)  # type: ignore[attr-defined]
    assert (late == given_others) == (plain == given_others)
    assert late != list(plain)
