"""Session tokens: a session's signed state, which the caller sends back with the next window.

A token is `base64url(payload).base64url(signature)`, signed like a JSON Web Token of type `CRP`
with a key of the session. All malformed and forged tokens give the same error. A token is a secret,
so no message contains one.

Spec: related facts §5
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from crp_integrations.errors import LimitReached, StaleTip, TokenRefused
from crp_integrations.ports import KeyRing, retired_of
from crp_integrations.records import Part
from crp_integrations.seals import SIGN_INFO, derive_key, token_signature
from crp_integrations.session.records import CONTINUATION_ID, DELIVERED, SESSION_ID, WindowNode
from crp_integrations.session.settings import TokenSettings
from crp_integrations.vocabulary import Pattern, QualityTier, Strategy

_ENCODED: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
# 32 bytes in base64url, without padding.
_SIGNATURE_CHARACTERS: Final = 43
_REFUSED: Final = "the session token is not genuine; begin another session"

Hash = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]


class SessionToken(Part):
    """The content of a session token; the aliases are the names in its payload.

    Spec: related facts §5

    Attributes:
        chain_tip: HMAC of the session's last window.
        continuation_id: id with which the session may be continued; empty when it may not.
        policy_hash: hash of the safety policy in its canonical form; empty for none.
        state_hash: hash of the fabric's state; empty when not given.
        scope: hash of the tenant and user that the token is valid for.
        issued_at, expires_at: seconds since 1970, UTC.
        nonce: nonce of the safety policy, or of this token.
    """

    model_config = ConfigDict(populate_by_name=True)

    version: Literal["3.0.0"] = Field(default="3.0.0", alias="v")
    session_id: str = Field(alias="sid", pattern=f"^{SESSION_ID.pattern}$")
    window_number: int = Field(alias="win", ge=1)
    tiers: tuple[QualityTier, ...] = Field(default=(), alias="qh")
    safety_budget: float = Field(alias="sb", ge=0.0, le=1.0)
    chain_tip: Hash = Field(default="", alias="ct")
    continuation_id: str = Field(default="", alias="cid", pattern=f"^({CONTINUATION_ID.pattern})?$")
    pattern: Pattern = Field(default=Pattern.LINEAR, alias="dag")
    strategy: Strategy = Field(default=Strategy.PUSH, alias="str")
    policy_hash: Hash = Field(default="", alias="pol")
    state_hash: Hash = Field(default="", alias="ckf")
    scope: str = ""
    issued_at: int = Field(alias="iat", ge=0)
    expires_at: int = Field(alias="exp", ge=0)
    nonce: str = ""

    @property
    def lifetime_seconds(self) -> int:
        """Seconds from issue to expiry, at least 0."""
        return max(0, self.expires_at - self.issued_at)


def expiry_of(issued_at: int, settings: TokenSettings) -> int:
    """The expiry of a token by its time of issue."""
    return issued_at + settings.lifetime_seconds


def signing_key(keyring: KeyRing, session_id: str) -> bytes:
    """The key that signs a session's tokens, 32 bytes."""
    return derive_key(keyring.master(), salt=session_id, info=SIGN_INFO)


def reading_keys(keyring: KeyRing, session_id: str) -> tuple[bytes, ...]:
    """The keys that may have signed a session's tokens, newest first.

    A token stays valid after the master key is rotated, until it expires.
    """
    retired = retired_of(keyring)
    earlier = (derive_key(master, salt=session_id, info=SIGN_INFO) for master in reversed(retired))
    return (signing_key(keyring, session_id), *earlier)


def sign_token(token: SessionToken, key: bytes, settings: TokenSettings) -> str:
    """Encode and sign a token."""
    payload = _encode(token.model_dump_json(by_alias=True).encode())
    text = f"{payload}.{_encode(token_signature(key, payload))}"
    if len(text) > settings.most_bytes:
        raise LimitReached(
            f"the session token has {len(text)} bytes, at most {settings.most_bytes} are allowed; "
            "a shorter scope or nonce takes less"
        )
    return text


def read_token(
    text: str,
    keys: Callable[[str], Iterable[bytes]],
    *,
    now: datetime,
    scope: str,
    settings: TokenSettings,
) -> SessionToken:
    """Verify and decode a token."""
    token, payload, signed = _split_token(text, settings)
    genuine = False
    for key in keys(token.session_id):
        genuine |= hmac.compare_digest(token_signature(key, payload), signed)
    if not genuine:
        raise TokenRefused(_REFUSED)
    if now.timestamp() >= token.expires_at:
        raise TokenRefused("the session token has expired; begin another session")
    if not hmac.compare_digest(token.scope.encode(), scope.encode()):
        raise TokenRefused("the session token is for another scope; use it where it was issued")
    return token


def claimed_session(text: str, settings: TokenSettings) -> str:
    """The session id in a token that is not verified yet; `read_token` verifies it."""
    return _split_token(text, settings)[0].session_id


def _split_token(text: str, settings: TokenSettings) -> tuple[SessionToken, str, bytes]:
    """A token's content, its signed payload and its signature; nothing is verified."""
    payload, dot, signature = text.partition(".")
    if (
        not dot
        or len(text) > settings.most_bytes
        or len(signature) != _SIGNATURE_CHARACTERS
        or not (_ENCODED.fullmatch(payload) and _ENCODED.fullmatch(signature))
    ):
        raise TokenRefused(_REFUSED)
    try:
        token = SessionToken.model_validate_json(_decode(payload), strict=True)
    except ValidationError:
        raise TokenRefused(_REFUSED) from None
    return token, payload, _decode(signature)


def window_of_token(token: SessionToken, windows: Sequence[WindowNode]) -> WindowNode:
    """The window that a token belongs to; raises if a delivered window follows it.

    A refused or failed window gave its caller no new token, so the token before it stays valid.
    """
    tip = next(
        (
            node
            for node in windows
            if hmac.compare_digest(node.hmac.encode(), token.chain_tip.encode())
        ),
        None,
    )
    if tip is not None and not _delivered_after(tip, windows):
        return tip
    raise StaleTip(
        f"the session token is of window {token.window_number}, which is not the last of the "
        "session; use the token of the last answer"
    )


def _delivered_after(tip_of: WindowNode, windows: Sequence[WindowNode]) -> bool:
    following = {tip_of.window_id}
    # Numbers rise along every edge, so one pass in this order finds all followers.
    for node in sorted(windows, key=lambda window: window.window_number):
        if not following.isdisjoint(node.parents):
            if node.outcome in DELIVERED:
                return True
            following.add(node.window_id)
    return False


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes:
    """Decode base64url; a text that is not the canonical encoding of its bytes is refused."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        raise TokenRefused(_REFUSED) from None
    if _encode(data) != text:
        raise TokenRefused(_REFUSED)
    return data
