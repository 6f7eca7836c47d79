"""The keys of the chains, derived from the master key and never stored."""

from __future__ import annotations

from crp_integrations.ports import KeyRing
from crp_integrations.seals import JOURNAL_INFO, SESSION_INFO, derive_key

ETAG_INFO = b"crp-session-etag-v1"


def journal_key(keyring: KeyRing, namespace: str) -> bytes:
    """The key of a namespace's journal, 32 bytes."""
    return derive_key(keyring.master(), salt=namespace, info=JOURNAL_INFO)


def session_key(keyring: KeyRing, session_id: str) -> bytes:
    """The key of a session's window chain, 32 bytes.

    Spec: related facts §5
    """
    return derive_key(keyring.master(), salt=session_id, info=SESSION_INFO)


def etag_salt(keyring: KeyRing, session_id: str) -> str:
    """What salts a session's ETags, 64 hexadecimal digits; nobody without the key can tell it.

    Spec: CRP-SPEC-003 §16.2
    """
    return derive_key(keyring.master(), salt=session_id, info=ETAG_INFO).hex()
