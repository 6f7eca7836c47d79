"""Laws of the ground floor: records, scores, seals, vectors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import Field, ValidationError

from crp_integrations.errors import EngineError
from crp_integrations.messages import Message
from crp_integrations.records import Record
from crp_integrations.scores import SCALE, from_fixed, to_fixed
from crp_integrations.seals import (
    JOURNAL_INFO,
    SEPARATOR,
    SESSION_INFO,
    canonical,
    derive_key,
    digest,
    event_hmac,
    iso,
    same,
    window_hmac,
)
from crp_integrations.vectors import cosine, from_bytes, to_bytes, top, unit_rows

FEW = settings(max_examples=50, deadline=None)
KEY = bytes(32)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELD = st.text(st.characters(codec="utf-8", exclude_characters=SEPARATOR), max_size=6)
ROWS = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.just(5)),
    elements=st.floats(-100, 100, width=32, allow_subnormal=False),
)


# --- scores ----------------------------------------------------------------------------


@given(st.floats())
def test_every_float_has_a_fixed_point_within_the_scale(score):
    fixed = to_fixed(score)
    assert isinstance(fixed, int)
    assert 0 <= fixed <= SCALE


@pytest.mark.parametrize(
    ("score", "fixed"),
    [(float("inf"), SCALE), (float("-inf"), 0), (float("nan"), 0), (-0.0, 0), (2.0, SCALE)],
)
def test_what_lies_outside_is_clamped(score, fixed):
    assert to_fixed(score) == fixed


@given(st.integers(0, SCALE))
def test_fixed_points_come_back(value):
    assert to_fixed(from_fixed(value)) == value


@given(st.floats(0, 1), st.floats(0, 1))
def test_fixing_keeps_the_order(left, right):
    if left <= right:
        assert to_fixed(left) <= to_fixed(right)


# --- seals -----------------------------------------------------------------------------


def sealed(fields):
    session, timestamp, response, report, parent = fields
    return window_hmac(
        KEY,
        session_id=session,
        window_number=1,
        timestamp=timestamp,
        response_hash=response,
        report_hash=report,
        parent_hmac=parent,
    )


@FEW
@given(st.tuples(*[FIELD] * 5), st.tuples(*[FIELD] * 5))
def test_two_seals_agree_only_when_every_field_does(left, right):
    assert same(sealed(left), sealed(right)) == (left == right)


@FEW
@given(st.tuples(*[FIELD] * 5), st.integers(0, 3))
def test_moving_a_character_over_a_border_changes_the_seal(fields, place):
    fields = [*fields]
    fields[place] += "x"
    moved = [*fields]
    moved[place], moved[place + 1] = fields[place][:-1], "x" + fields[place + 1]
    assert sealed(fields) != sealed(moved)


@pytest.mark.parametrize("place", range(5))
def test_the_separator_cannot_be_sealed(place):
    fields = [""] * 5
    fields[place] = f"a{SEPARATOR}b"
    with pytest.raises(ValueError, match="U\\+241F"):
        sealed(fields)


@FEW
@given(JSON, JSON)
def test_an_events_seal_covers_its_data(left, right):
    seals = [
        event_hmac(KEY, event_type="t", timestamp="n", data=data, window_id="", previous_hmac="")
        for data in (left, right)
    ]
    assert (seals[0] == seals[1]) == (canonical(left) == canonical(right))


@FEW
@given(JSON)
def test_canonical_json_reads_back_and_is_a_fixed_point(value):
    written = canonical(value)
    assert json.loads(written) == value
    assert canonical(json.loads(written)) == written
    assert digest(value) == digest(json.loads(written))


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats()
    | st.sampled_from(
        (1.0, -0.0, 1e-5, -1.5e-5, 1e-7, 1e-4, 2.0**53, 1e21, 123456789012345.6, 5e-324)
    )
    | st.text(max_size=8)
    | st.sampled_from(
        (
            '[1e"',
            ",9999999999999999",
            "\x00\x1f\x7f\u2028",
            "\ud800",
            "\ufdd0",
            "\ufdd01e-7\ufdd0",
            '"\\/',
        )
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(ANYTHING)
def test_canonical_json_is_what_the_general_encoder_writes_or_refuses(value):
    try:
        wanted = rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        with pytest.raises(type(error)):
            canonical(value)
    else:
        assert canonical(value) == wanted


ALIKE = st.one_of(
    st.lists(st.floats() | st.sampled_from((0.0, 1.0, 1e-4, 9e-5, 1e15)), max_size=4),
    st.lists(st.integers(10**15 - 2, 10**15 + 2) | st.integers(-3, 3), max_size=4),
    st.lists(st.text(max_size=3), max_size=4),
)


@settings(max_examples=100, deadline=None)
@given(ALIKE)
def test_lists_of_one_kind_are_written_as_the_general_encoder_writes_them(values):
    try:
        wanted = rfc8785.dumps(values)
    except rfc8785.CanonicalizationError:
        with pytest.raises(rfc8785.CanonicalizationError):
            canonical(values)
    else:
        assert canonical(values) == wanted


@FEW
@given(st.dictionaries(st.text(max_size=4), st.integers(0, 9), min_size=2))
def test_the_order_of_keys_does_not_matter(value):
    assert canonical(value) == canonical(dict(reversed(value.items())))


def test_keys_of_sessions_and_journals_differ():
    keys = {
        derive_key(KEY, salt=salt, info=info)
        for salt in ("a", "b")
        for info in (SESSION_INFO, JOURNAL_INFO)
    }
    assert len(keys) == 4
    assert {len(key) for key in keys} == {32}


@FEW
@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1)),  # noqa: DTZ001
    st.integers(-14 * 60, 14 * 60),
)
def test_a_moment_is_written_alike_in_every_time_zone(moment, offset):
    there = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=offset)))
    assert iso(there) == iso(moment.replace(tzinfo=UTC))
    assert iso(there).endswith("Z")
    assert datetime.fromisoformat(iso(there)) == there


# --- records ---------------------------------------------------------------------------


class Note(Record):
    SCHEMA = "note/2"

    words: str = Field(max_length=20)

    @classmethod
    def upgrade(cls, number, fields):
        return {"words": fields["text"]} if number == 1 else fields


@FEW
@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_record_reads_back_with_its_schema_first(words):
    note = Note(words=words)
    written = json.loads(note.model_dump_json())
    assert next(iter(written)) == "schema"
    assert written["schema"] == "note/2"
    assert Note.model_validate(written) == note == note.changed()


@pytest.mark.parametrize(
    "fields",
    [
        {"schema": "note/3", "words": "x"},
        {"schema": "letter/2", "words": "x"},
        {"schema": "note", "words": "x"},
        {"schema": "note/2", "words": "x", "more": 1},
        {"schema": "note/2"},
    ],
)
def test_newer_foreign_and_larger_records_are_refused(fields):
    with pytest.raises(ValidationError):
        Note.model_validate(fields)


def test_an_older_record_is_read():
    assert Note.model_validate({"schema": "note/1", "text": "x"}) == Note(words="x")


def test_a_change_is_validated_and_the_record_frozen():
    note = Note(words="x")
    with pytest.raises(ValidationError):
        note.changed(words="x" * 21)
    with pytest.raises(ValidationError):
        note.changed(unknown=1)
    with pytest.raises(ValidationError):
        note.words = "y"


def test_what_is_wrong_in_a_record_is_not_repeated_in_the_error():
    for broken in (lambda: Note(words="secret " * 9), lambda: Message(role="secret", content="s")):
        with pytest.raises(ValidationError) as caught:
            broken()
        assert "secret" not in str(caught.value)


# --- vectors ---------------------------------------------------------------------------


@FEW
@given(ROWS)
def test_rows_get_length_one_and_zero_rows_stay(rows):
    block = unit_rows(rows, dimensions=5)
    assert block.dtype == np.float32
    assert block.flags.c_contiguous
    lengths = np.linalg.norm(block.astype(np.float64), axis=1)
    zero = ~rows.any(axis=1)
    assert (lengths[zero] == 0).all()
    assert lengths[~zero] == pytest.approx(1.0, abs=1e-6)


@FEW
@given(ROWS)
def test_a_rows_cosine_does_not_depend_on_its_neighbours(rows):
    block = unit_rows(rows)
    together = cosine(block, block[0])
    alone = [cosine(block[i : i + 1].copy(), block[0])[0] for i in range(len(block))]
    assert together.tolist() == [float(score) for score in alone]
    assert np.abs(together).max(initial=0.0) <= 1.0 + 1e-6


@FEW
@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=12), st.integers(-1, 14))
def test_the_best_are_those_of_a_full_sort(scores, k):
    ids = [f"id-{(7 * n) % 13:02d}" for n in range(len(scores))]
    best = top(np.array(scores, dtype=np.float32), ids, k)
    wanted = sorted(range(len(ids)), key=lambda i: (-scores[i], ids[i]))
    assert best == wanted[: max(0, k)]


@FEW
@given(ROWS)
def test_vectors_read_back_bit_for_bit(rows):
    read = from_bytes([to_bytes(row) for row in rows], 5)
    assert read.tobytes() == rows.tobytes()


@pytest.mark.parametrize("rows", [[[np.nan, 1.0]], [[np.inf, 1.0]], [1.0, 2.0], [[1.0, 2.0, 3.0]]])
def test_blocks_that_are_none_are_refused(rows):
    with pytest.raises(EngineError):
        unit_rows(rows, dimensions=2)


def test_a_stored_row_of_another_length_is_refused():
    with pytest.raises(EngineError, match="vector 1 has 4 bytes, wanted 8"):
        from_bytes([bytes(8), bytes(4)], 2)
