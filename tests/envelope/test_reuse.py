"""Which earlier envelope may be reused: equality of validators decides, and nothing crosses."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.envelope.reuse import (
    ANY_ETAG,
    CANDIDATE_BYTES,
    CHANGES,
    PACKED_BYTES,
    EnvelopeScope,
    KnownEnvelopes,
    Validators,
    decomposition_hash,
    etag,
)
from crp_integrations.envelope.settings import ReuseSettings
from crp_integrations.language import memo
from crp_integrations.vocabulary import CacheStatus, Changed, GroundingMode, Strategy
from tests.doubles import NOON
from tests.envelope.builders import candidates, fact, made

MINE = EnvelopeScope("tenant", "subject", "", "crp_sess_0123456789abcdef")
HEADERS = {"CRP-Context-Window": "1/5"}
OTHER: dict[str, Any] = {
    "state_hash": "other",
    "readable": 8,
    "decomposition": decomposition_hash("q", ("a", "b")),
    "embedder": "other",
    "model": "other",
    "tokenizer": "other",
    "budget_tokens": 99,
    "settings_digest": "other",
    "grounding": GroundingMode.OPEN,
    "strategy": Strategy.PULL,
    "guard": "other",
    "policy": "other",
    "k": 3,
    "max_age_seconds": 60,
    "packing": "other",
    "layout": "other",
    "prompt": "other",
    "prior": "other",
    "automatic": True,
    "judge": "other",
}
SELECTING = {"state_hash", "readable", "decomposition", "embedder", "settings_digest", "guard"}


def validators(**fields: Any) -> Validators:
    return Validators(
        **{
            "state_hash": "state",
            "readable": 7,
            "decomposition": decomposition_hash("q", ("q",)),
            "embedder": "minilm",
            "model": "extractive",
            "tokenizer": "letters@1",
            "budget_tokens": 500,
            "settings_digest": "digest",
            "grounding": GroundingMode.PREFERRED,
            "strategy": Strategy.PUSH,
            **fields,
        }
    )


CANDIDATES = candidates(fact("a"), fact("b"))
ENVELOPE = made(CANDIDATES)


def known(now: datetime = NOON, **fields: Any) -> KnownEnvelopes:
    kept = KnownEnvelopes(ReuseSettings(**fields))
    kept.remember(MINE, validators(), ENVELOPE, CANDIDATES, now, HEADERS)
    return kept


def test_every_validator_has_a_word_and_none_is_left_out() -> None:
    assert set(CHANGES) == set(Validators.model_fields) == set(OTHER)
    # How much fits is one word, whoever says it.
    assert CHANGES["automatic"] is CHANGES["budget_tokens"]
    assert CHANGES["guard"] is CHANGES["readable"]
    assert len(set(CHANGES.values())) == len(CHANGES) - 2


@pytest.mark.requirement("003-11.1-1")
def test_equal_validators_give_the_very_envelope() -> None:
    match = known().match(MINE, ENVELOPE.etag, validators(), NOON)
    assert match.status is CacheStatus.HIT
    assert match.reasons == ()
    assert match.known is not None
    assert match.known.envelope is ENVELOPE
    assert match.known.headers == HEADERS


@pytest.mark.requirement("003-11.3-3")
@pytest.mark.parametrize("field", list(OTHER))
def test_one_changed_validator_is_a_miss_that_says_which(field: str) -> None:
    now = validators(**{field: OTHER[field]})
    match = known().match(MINE, ENVELOPE.etag, now, NOON)
    assert match.status is CacheStatus.MISS
    assert match.reasons == (CHANGES[field],)
    assert now.selects_like(validators()) == (field not in {*SELECTING, "prior"})


@given(st.sets(st.sampled_from(sorted(OTHER)), min_size=1))
def test_all_that_has_changed_is_told_in_one_order(fields: set[str]) -> None:
    changed = validators(**{field: OTHER[field] for field in fields})
    told = changed.reasons(validators())
    # Each word once, whatever fields it stands for.
    assert told == tuple(dict.fromkeys(CHANGES[field] for field in CHANGES if field in fields))
    assert validators().reasons(changed) == told


@pytest.mark.requirement("003-11.3-2")
@given(st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda text: "sha256:" + text))
def test_an_etag_that_is_not_known_is_never_a_hit(presented: str) -> None:
    match = known().match(MINE, presented, validators(), NOON)
    assert match.status is CacheStatus.MISS
    assert match.reasons == (Changed.UNKNOWN,)
    assert match.known is None


@pytest.mark.requirement("003-11.3-2")
@pytest.mark.parametrize("field", ["tenant", "subject", "residency", "session_id"])
@pytest.mark.parametrize("presented", [ENVELOPE.etag, ANY_ETAG])
def test_nothing_crosses_to_another_scope(field: str, presented: str) -> None:
    other = replace(MINE, **{field: "crp_sess_fedcba9876543210"})
    kept = known()
    assert kept.match(other, presented, validators(), NOON).reasons == (Changed.UNKNOWN,)
    assert kept.match(MINE, presented, validators(), NOON).status is CacheStatus.HIT


@pytest.mark.requirement("003-11.4-3", "009-7.1-3")
def test_no_cache_and_held_facts_go_before_any_etag() -> None:
    kept = known()
    said = kept.match(MINE, ENVELOPE.etag, validators(), NOON, no_cache=True)
    assert (said.status, said.reasons, said.known) == (CacheStatus.MISS, (Changed.NO_CACHE,), None)
    said = kept.match(MINE, ENVELOPE.etag, validators(), NOON, holds=True)
    assert (said.status, said.reasons, said.known) == (CacheStatus.MISS, (Changed.HELD,), None)


def test_one_etag_may_be_that_of_several_envelopes() -> None:
    kept = known()
    wide = made(CANDIDATES, budget_tokens=9_000)
    assert wide.etag == ENVELOPE.etag
    kept.remember(MINE, validators(budget_tokens=9_000), wide, CANDIDATES, NOON, HEADERS)
    for budget, envelope in ((500, ENVELOPE), (9_000, wide)):
        match = kept.match(MINE, ENVELOPE.etag, validators(budget_tokens=budget), NOON)
        assert match.known is not None
        assert match.known.envelope is envelope


def test_after_its_time_an_envelope_is_not_known() -> None:
    kept = known(lifetime_seconds=60)
    later = NOON + timedelta(seconds=60)
    assert kept.match(MINE, ENVELOPE.etag, validators(), later).status is CacheStatus.HIT
    later += timedelta(microseconds=1)
    assert kept.match(MINE, ENVELOPE.etag, validators(), later).reasons == (Changed.EXPIRED,)
    assert len(kept) == kept.bytes == 0


@pytest.mark.requirement("003-11.3-3")
def test_a_fact_that_grows_too_old_meanwhile_is_a_change() -> None:
    limit = 3_600
    aging = candidates(
        fact("a", ingested_at=NOON), fact("b", ingested_at=NOON - timedelta(seconds=limit - 1))
    )
    kept = KnownEnvelopes(ReuseSettings())
    asked = validators(max_age_seconds=limit)
    envelope = made(aging, max_age_seconds=limit)
    kept.remember(MINE, asked, envelope, aging, NOON, HEADERS)
    still = NOON + timedelta(seconds=1)
    assert kept.match(MINE, envelope.etag, asked, still).status is CacheStatus.HIT
    crossed = NOON + timedelta(seconds=2)
    assert kept.match(MINE, envelope.etag, asked, crossed).reasons == (Changed.MAX_AGE,)


def test_texts_of_another_state_are_let_go_and_the_validators_stay() -> None:
    kept = known()
    assert kept.bytes > 0
    changed = validators(state_hash="after an erasure")
    match = kept.match(MINE, ENVELOPE.etag, changed, NOON)
    assert match.reasons == (Changed.FACTS,)
    assert match.known is not None
    assert match.known.envelope is match.known.candidates is match.known.headers is None
    assert kept.bytes == 0
    # Another session's question is enough, another tenant's is none of it.
    kept = known()
    kept.match(replace(MINE, tenant="other"), ANY_ETAG, changed, NOON)
    assert kept.bytes > 0
    kept.remember(replace(MINE, session_id="other"), changed, ENVELOPE, CANDIDATES, NOON)
    assert kept.match(MINE, ENVELOPE.etag, validators(), NOON).known is not None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("remember", "match", "end")),
            st.sampled_from(("one", "other")),
            st.sampled_from(("", "eu")),
            st.integers(1, 3),
            st.sampled_from(("before", "after")),
        ),
        max_size=15,
    ),
    st.integers(1, 3),
)
def test_no_text_of_another_state_outlives_a_look(
    steps: list[tuple[str, str, str, int, str]], most: int
) -> None:
    kept = KnownEnvelopes(ReuseSettings(envelopes=most))
    for what, tenant, residency, k, state in steps:
        scope = replace(MINE, tenant=tenant, residency=residency)
        asked = validators(k=k, state_hash=state)
        if what == "end":
            kept.end(MINE.session_id)
            assert len(kept) == kept.bytes == 0
            continue
        others = texts(kept, scope, theirs=False)
        if what == "remember":
            kept.remember(scope, asked, ENVELOPE, CANDIDATES, NOON)
        else:
            kept.match(scope, ANY_ETAG, asked, NOON)
        assert set(texts(kept, scope)) <= {state}
        # Nobody else's were let go for it; one may have had to make room.
        assert len(texts(kept, scope, theirs=False)) >= len(others) - (what == "remember")


def texts(kept: KnownEnvelopes, scope: EnvelopeScope, *, theirs: bool = True) -> list[str]:
    """The states of the entries with texts of a scope's tenant and region, or of all others."""
    place = (scope.tenant, scope.residency)
    return [
        known.validators.state_hash
        for (of, _, _), known in kept._entries.items()
        if known.envelope is not None and ((of.tenant, of.residency) == place) is theirs
    ]


def test_a_preview_takes_nothing_from_an_answer() -> None:
    kept = known()
    kept.remember(MINE, validators(), made(CANDIDATES), CANDIDATES, NOON)
    match = kept.match(MINE, ENVELOPE.etag, validators(), NOON)
    assert match.known is not None
    assert match.known.headers == HEADERS
    assert len(kept) == 1


def test_a_session_that_ends_is_forgotten_alone() -> None:
    kept = known()
    other = replace(MINE, session_id="other")
    kept.remember(other, validators(), ENVELOPE, CANDIDATES, NOON, HEADERS)
    assert kept.end(MINE.session_id) == 1
    assert kept.match(MINE, ANY_ETAG, validators(), NOON).reasons == (Changed.UNKNOWN,)
    assert kept.match(other, ANY_ETAG, validators(), NOON).status is CacheStatus.HIT
    assert kept.end("other") == 1
    assert len(kept) == kept.bytes == 0


def test_an_erasure_drops_all_texts_at_once_and_keeps_no_memory_alive() -> None:
    kept = known()
    memo.forget()
    assert texts(kept, MINE) == []
    assert (len(kept), kept.bytes) == (1, 0)
    match = kept.match(MINE, ENVELOPE.etag, validators(), NOON)
    assert (match.status, match.reasons) == (CacheStatus.MISS, (Changed.EXPIRED,))
    changed = kept.match(MINE, ENVELOPE.etag, validators(state_hash="other"), NOON)
    assert changed.reasons == (Changed.FACTS,)
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is None


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60)), max_size=25),
    st.integers(0, 4),
    st.integers(0, 20_000),
)
def test_neither_bound_is_ever_passed(
    rows: list[tuple[int, int]], envelopes: int, most: int
) -> None:
    kept = KnownEnvelopes(ReuseSettings(envelopes=envelopes, bytes=most))
    for number, size in rows:
        given_facts = candidates(fact("a", content="x" * size))
        envelope = made(given_facts)
        asked = validators(k=number + 1)
        kept.remember(MINE, asked, envelope, given_facts, NOON, HEADERS)
        assert len(kept) <= envelopes
        assert kept.bytes <= most
        if envelopes and 2 * size + 4 + CANDIDATE_BYTES + PACKED_BYTES <= most:
            assert kept.match(MINE, ANY_ETAG, asked, NOON).status is CacheStatus.HIT


def test_the_latest_used_stay_longest() -> None:
    kept = KnownEnvelopes(ReuseSettings(envelopes=2))
    for k in (1, 2):
        kept.remember(MINE, validators(k=k), ENVELOPE, CANDIDATES, NOON, HEADERS)
    kept.match(MINE, ENVELOPE.etag, validators(k=1), NOON)
    kept.remember(MINE, validators(k=3), ENVELOPE, CANDIDATES, NOON, HEADERS)
    found = [kept.match(MINE, ANY_ETAG, validators(k=k), NOON).status for k in (1, 3)]
    assert found == [CacheStatus.HIT, CacheStatus.HIT]
    assert kept.match(MINE, ANY_ETAG, validators(k=2), NOON).status is CacheStatus.MISS


def test_validators_hold_no_text_and_read_back() -> None:
    asked = validators(
        decomposition=decomposition_hash("a secret question", ("a secret", "question"))
    )
    written = asked.model_dump_json()
    assert "secret" not in written
    assert Validators.model_validate_json(written) == asked
    assert (
        decomposition_hash("ab", ())
        != decomposition_hash("a", ("b",))
        != decomposition_hash("a", ("b", ""))
    )


def test_a_salt_parts_equal_sets_of_facts() -> None:
    plain = etag(["b", "a"])
    assert etag(["a", "b"], "one") == etag(["b", "a"], "one")
    assert len({plain, etag(["a", "b"], "one"), etag(["a", "b"], "two")}) == 3
    salted = made(CANDIDATES, salt="one")
    assert salted.etag == etag(["a", "b"], "one")
    assert "etag-salted@1" in salted.algorithms
    assert "etag@1" not in salted.algorithms
