"""Continuation ids: their form, to whom they belong, and that the last window has none."""

from __future__ import annotations

import pytest

from crp_integrations.engines.system import RandomIds
from crp_integrations.errors import UnknownContinuation
from crp_integrations.session import records
from tests.doubles import CountingIds
from tests.session.window_nodes import SESSION, node

ONE, OTHER = "crp_cont_" + "a" * 16, "crp_cont_" + "B" * 32


def test_no_id_is_issued_at_the_last_window() -> None:
    source = CountingIds()
    assert records.new_continuation(source, 4, 5) == "crp_cont_0000000000000001"
    assert records.new_continuation(source, 5, 5) == ""
    assert records.new_continuation(source, 6, 5) == ""
    assert source.made == 1


def test_ids_that_are_issued_have_the_form_and_128_bits() -> None:
    made = {records.new_continuation(RandomIds(), 1, 5) for _ in range(50)}
    assert len(made) == 50
    assert all(records.CONTINUATION_ID.fullmatch(one) for one in made)
    # 36 signs, so many as stand behind the prefix.
    assert 36 ** (len(made.pop()) - len("crp_cont_")) >= 2**128


def test_an_id_belongs_to_one_session() -> None:
    own = node("a", 1, continuation_id=ONE)
    foreign = node("b", 1, continuation_id=OTHER, session_id="crp_sess_" + "0" * 16)
    known = {ONE: own, OTHER: foreign}.get
    assert records.resolve_continuations([ONE], SESSION, known) == (own,)
    assert records.resolve_continuations([], SESSION, known) == ()
    said = set()
    for wrong in (OTHER, "crp_cont_" + "c" * 32):
        with pytest.raises(UnknownContinuation) as unknown:
            records.resolve_continuations([ONE, wrong], SESSION, known)
        assert unknown.value.status_hint == 404
        said.add(str(unknown.value).replace(wrong, ""))
    # Nobody learns which ids other sessions have.
    assert len(said) == 1
