"""Session tokens: what was signed is read back, and nothing else is."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crp_integrations.engines.system import RandomIds
from crp_integrations.errors import LimitReached, StaleTip, TokenRefused, UnknownContinuation
from crp_integrations.seals import sha256
from crp_integrations.session import records, token
from crp_integrations.session.settings import TokenSettings
from crp_integrations.session.token import SessionToken
from crp_integrations.stores.keys import FixedKeyRing
from crp_integrations.vocabulary import Pattern, QualityTier, Strategy
from tests.doubles import CountingIds
from tests.session.window_nodes import DIAMOND, SESSION, chain, node

SETTINGS = TokenSettings()
RING = FixedKeyRing(bytes.fromhex("0123456789abcdef" * 4))
ISSUED = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
SECONDS = int(ISSUED.timestamp())
SCOPE = "tenant/user"


def made(**fields: Any) -> SessionToken:
    given: dict[str, Any] = {
        "session_id": SESSION,
        "window_number": 3,
        "tiers": (QualityTier.A, QualityTier.A, QualityTier.B),
        "safety_budget": 0.85,
        "chain_tip": sha256("tip"),
        "continuation_id": "crp_cont_c1d4e5f60718293a",
        "strategy": Strategy.REFLEXIVE,
        "policy_hash": sha256("policy"),
        "state_hash": sha256("state"),
        "scope": SCOPE,
        "issued_at": SECONDS,
        "expires_at": token.expiry_of(SECONDS, SETTINGS),
        "nonce": "base64:nZ8fXw==",
        **fields,
    }
    return SessionToken(**given)


def signed(said: SessionToken | None = None, ring: FixedKeyRing = RING) -> str:
    said = said or made()
    return token.sign_token(said, token.signing_key(ring, said.session_id), SETTINGS)


def read(text: str, *, after: float = 0.0, scope: str = SCOPE) -> SessionToken:
    return token.read_token(
        text,
        lambda named: token.reading_keys(RING, named),
        now=ISSUED + timedelta(seconds=after),
        scope=scope,
        settings=SETTINGS,
    )


def plain(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_token_is_what_the_facts_say_it_is() -> None:
    text = signed()
    payload, signature = text.split(".")
    assert json.loads(plain(payload)) == {
        "v": "3.0.0",
        "sid": SESSION,
        "win": 3,
        "qh": ["A", "A", "B"],
        "sb": 0.85,
        "ct": sha256("tip"),
        "cid": "crp_cont_c1d4e5f60718293a",
        "dag": "LINEAR",
        "str": "reflexive",
        "pol": sha256("policy"),
        "ckf": sha256("state"),
        "scope": SCOPE,
        "iat": SECONDS,
        "exp": SECONDS + 3_600,
        "nonce": "base64:nZ8fXw==",
    }
    # Computed again here from the formula, with no line of ours.
    key = HKDF(SHA256(), 32, SESSION.encode(), b"crp-session-sign-v3").derive(RING.master())
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"CRP"}').rstrip(b"=").decode()
    wanted = hmac.new(key, f"{header}.{payload}".encode(), hashlib.sha256).digest()
    assert plain(signature) == wanted
    assert len(text) <= 4_096 and "=" not in text


def test_the_golden_token() -> None:
    said = SessionToken(
        session_id=SESSION,
        window_number=1,
        safety_budget=1.0,
        issued_at=1_748_160_000,
        expires_at=1_748_163_600,
    )
    # Changed bytes would refuse the tokens of a running version.
    assert sha256(signed(said)) == (
        "sha256:7d1edd9a68cbca14f4b6df544e1e2309549bced5eabb6498908ed5bac5e72abb"
    )


SAID = st.builds(
    made,
    window_number=st.integers(1, 50),
    tiers=st.lists(st.sampled_from(QualityTier), max_size=50).map(tuple),
    safety_budget=st.integers(0, 10_000).map(lambda n: n / 10_000),
    pattern=st.sampled_from(Pattern),
    strategy=st.sampled_from(Strategy),
    chain_tip=st.sampled_from(["", sha256("x")]),
    continuation_id=st.sampled_from(["", "crp_cont_" + "a" * 32]),
    nonce=st.text(st.characters(codec="utf-8"), max_size=40),
)


@given(SAID)
def test_what_was_signed_is_read_back(said: SessionToken) -> None:
    assert read(signed(said)) == said


@settings(max_examples=100)
@given(st.data())
def test_any_change_of_a_token_is_refused(data: st.DataObject) -> None:
    text = signed()
    place = data.draw(st.integers(0, len(text) - 1))
    sign = data.draw(st.sampled_from("Aa0_-.=z") | st.characters(codec="utf-8"))
    how = data.draw(st.sampled_from(["replace", "insert", "cut", "drop"]))
    changed = {
        "replace": text[:place] + sign + text[place + 1 :],
        "insert": text[:place] + sign + text[place:],
        "cut": text[:place],
        "drop": text[:place] + text[place + 1 :],
    }[how]
    if changed != text:
        with pytest.raises(TokenRefused, match="not genuine"):
            read(changed)


def test_every_flipped_bit_is_refused() -> None:
    text = signed()
    for place in range(len(text)):
        for bit in range(7):
            changed = text[:place] + chr(ord(text[place]) ^ (1 << bit)) + text[place + 1 :]
            with pytest.raises(TokenRefused):
                read(changed)


ENDS = "." + "A" * 43


@settings(max_examples=100)
@given(
    st.text()
    | st.text("AQgw._-=", max_size=200)
    | st.binary(max_size=300).map(lambda raw: token._encode(raw) + ENDS)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=9) | st.integers(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["v", "sid", "win"]), inner)
        ),
    ).map(lambda value: token._encode(json.dumps(value).encode()) + ENDS)
)
@example(token._encode(b"[" * 3_000) + ENDS)
@example(token._encode(b'{"sid":"\\ud800"}') + ENDS)
@example(token._encode(b'{"win":' + b"9" * 2_900 + b"}") + ENDS)
def test_any_text_is_refused_and_breaks_nothing(text: str) -> None:
    with pytest.raises(TokenRefused, match="not genuine"):
        read(text)


def test_a_long_text_is_refused_before_it_is_looked_at() -> None:
    asked: list[str] = []
    with pytest.raises(TokenRefused):
        token.read_token(
            "A" * 5_000 + ENDS,
            lambda named: asked.append(named) or [],
            now=ISSUED,
            scope=SCOPE,
            settings=SETTINGS,
        )
    assert asked == []


@pytest.mark.parametrize(
    "change",
    [
        {"win": "3"},
        {"win": 0},
        {"sb": 1.1},
        {"sb": True},
        {"qh": ["A", "E"]},
        {"v": "2.0.0"},
        {"kv": 2},
        {"sid": SESSION + "\n"},
        {"ct": "sha256:" + "g" * 64},
        {"cid": "crp_cont_short"},
    ],
)
def test_a_genuine_signature_under_something_else_is_refused(change: dict[str, Any]) -> None:
    payload = json.loads(plain(signed().split(".")[0])) | change
    encoded = token._encode(json.dumps(payload).encode())
    session = str(payload["sid"])
    raw = token.token_signature(token.signing_key(RING, session), encoded)
    with pytest.raises(TokenRefused, match="not genuine"):
        read(f"{encoded}.{token._encode(raw)}")


def test_a_token_lives_for_an_hour() -> None:
    assert read(signed(), after=3_599.9) == made()
    for after in (3_600, 1e6):
        with pytest.raises(TokenRefused, match="has expired"):
            read(signed(), after=after)
    assert made().lifetime_seconds == 3_600


def test_a_token_is_for_its_scope_and_its_key_alone() -> None:
    with pytest.raises(TokenRefused, match="another scope"):
        read(signed(), scope="tenant/other")
    with pytest.raises(TokenRefused, match="not genuine"):
        read(signed(ring=FixedKeyRing(b"k" * 32)))
    # The key is the session's own: another session's signature does not do.
    other = made(session_id="crp_sess_0000000000000000")
    text = token.sign_token(other, token.signing_key(RING, SESSION), SETTINGS)
    with pytest.raises(TokenRefused, match="not genuine"):
        read(text)


class Rotated(FixedKeyRing):
    def retired(self) -> list[bytes]:
        return [b"o" * 32, RING.master()]


def test_a_token_outlives_a_rotation_of_the_key() -> None:
    ring = Rotated(b"n" * 32)
    for text in (signed(), signed(ring=ring), signed(ring=FixedKeyRing(b"o" * 32))):
        said = token.read_token(
            text,
            lambda named: token.reading_keys(ring, named),
            now=ISSUED,
            scope=SCOPE,
            settings=SETTINGS,
        )
        assert said == made()
    with pytest.raises(TokenRefused):
        read(signed(ring=ring))


def test_a_refusal_holds_nothing_of_the_token() -> None:
    for text, after in ((signed() + "A", 0), (signed(), 9_999)):
        with pytest.raises(TokenRefused) as refused:
            read(text, after=after)
        assert not any(part in str(refused.value) for part in (SESSION, *text.split(".")))
        assert refused.value.status_hint == 401


def test_a_token_that_would_be_too_long_is_not_made() -> None:
    with pytest.raises(LimitReached, match="at most 4096"):
        signed(made(scope="s" * 3_000))


def test_only_the_token_of_a_last_window_goes_on() -> None:
    windows = chain(None, None)
    last = made(chain_tip=windows[1].hmac, window_number=2)
    assert token.window_of_token(last, windows) == windows[1]
    with pytest.raises(StaleTip, match="window 1, which is not the last") as stale:
        token.window_of_token(made(chain_tip=windows[0].hmac, window_number=1), windows)
    assert stale.value.status_hint == 409
    for unknown in (sha256("never"), ""):
        with pytest.raises(StaleTip):
            token.window_of_token(made(chain_tip=unknown), windows)
    # Each window of a fan-out is a last one until they are merged.
    for one in DIAMOND[2:4]:
        assert token.window_of_token(made(chain_tip=one.hmac), DIAMOND[:4]) == one
        with pytest.raises(StaleTip):
            token.window_of_token(made(chain_tip=one.hmac), DIAMOND)


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
