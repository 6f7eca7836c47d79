"""Candidates that are made by the hundred are candidates like any other."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from crp_integrations.envelope.candidates import ScoredSpans, made, with_values
from crp_integrations.envelope.excerpts import _best_spans
from crp_integrations.envelope.records import Candidate

PLAIN = Candidate("f", "Mills grind.", "s", 7, 8, 9, community="c", decay="half-life@1:P30D")


def test_a_candidate_that_was_made_is_frozen_and_equal_to_one_that_was_constructed() -> None:
    values = [getattr(PLAIN, one.name) for one in fields(PLAIN)]
    candidate = made(*values)
    assert type(candidate) is Candidate
    assert candidate == PLAIN and hash(candidate) == hash(PLAIN) and repr(candidate) == repr(PLAIN)
    assert pickle.loads(pickle.dumps(candidate)) == deepcopy(candidate) == PLAIN
    assert replace(candidate, tokens=3) == replace(PLAIN, tokens=3)
    with pytest.raises(FrozenInstanceError):
        candidate.tokens = 1  # type: ignore[misc]


def test_what_is_not_given_has_the_default_of_the_record() -> None:
    assert made("f", "x", "s", 1, 2, 3) == Candidate("f", "x", "s", 1, 2, 3)
    with pytest.raises(TypeError):
        made("f", "x")


def test_other_values_leave_the_first_candidate_alone() -> None:
    changed = with_values(PLAIN, tokens=4, spans=((0, 5),))
    assert changed == replace(PLAIN, tokens=4, spans=((0, 5),))
    assert PLAIN.tokens == 9 and PLAIN.spans == ()


def test_stretches_over_an_array_give_plain_integers() -> None:
    stretches = ScoredSpans((0, 9), (8, 20), np.array([5, 7], dtype=np.int64))
    assert stretches == ((0, 8, 5), (9, 20, 7)) and len(stretches) == 2
    assert [type(one.score) for one in (*stretches, stretches[1])] == [int, int, int]
    assert hash(stretches) == hash(ScoredSpans((0, 9), (8, 20), (5, 7)))


def test_facts_without_stretches_stand_among_those_that_have_some() -> None:
    some = ScoredSpans((0, 9), (8, 20), np.array([5, 7], dtype=np.int64))
    facts = [replace(PLAIN, stretches=own) for own in ((), some, (), tuple(some))]
    assert list(_best_spans(facts, 3)) == [(1, 1), (3, 1), (1, 0)]
    assert list(_best_spans(facts[:1], 3)) == list(_best_spans([], 3)) == []
