"""A nonce belongs to one policy and one key."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.errors import RequestError
from crp_integrations.policy.policy_text import check_nonce, make_nonce, parse_policy
from crp_integrations.policy.records import Policy
from tests.policy.policies import policies

KEY = bytes(range(32))
RANDOM = st.binary(min_size=16, max_size=16)


@given(policies(), policies(), RANDOM)
def test_a_nonce_is_taken_for_its_own_policy_alone(
    policy: Policy, other: Policy, random: bytes
) -> None:
    nonce = make_nonce(policy, random=random, key=KEY)
    assert nonce.startswith("base64:")
    check_nonce(nonce, policy, key=KEY)
    if other != policy:
        with pytest.raises(RequestError) as caught:
            check_nonce(nonce, other, key=KEY)
        assert caught.value.status_hint == 400
    with pytest.raises(RequestError):
        check_nonce(nonce, policy, key=b"another key")


def test_the_spelling_of_a_policy_does_not_matter() -> None:
    nonce = make_nonce(parse_policy("profile=developer"), random=bytes(16), key=KEY)
    check_nonce(nonce, parse_policy("oversight AUTO; require-quality B; warn-on critical"), key=KEY)


@given(
    st.text(max_size=100)
    | st.binary(max_size=80).map(lambda b: "base64:" + base64.b64encode(b).decode())
)
def test_nothing_else_is_a_nonce(text: str) -> None:
    with pytest.raises(RequestError):
        check_nonce(text, Policy(), key=KEY)


@given(st.integers(0, 70), st.characters())
def test_a_changed_character_is_seen(place: int, character: str) -> None:
    nonce = make_nonce(Policy(), random=bytes(16), key=KEY)
    changed = nonce[:place] + character + nonce[place + 1 :]
    if changed != nonce:
        with pytest.raises(RequestError):
            check_nonce(changed, Policy(), key=KEY)


def test_too_little_chance_and_no_key_are_refused() -> None:
    for random, key in ((bytes(15), KEY), (bytes(16), b"")):
        with pytest.raises(ValueError, match="random bytes"):
            make_nonce(Policy(), random=random, key=key)
