"""The keys of the chains, derived from the master key and never stored.

A key ring that was rotated has several master keys, one an epoch. What is sealed is sealed with
the last; what an earlier one sealed still verifies. An event of any epoch but the first names its
key by an id, and along a chain the epoch never falls.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NoReturn, Self

from crp_integrations.ports import KeyRing, retired_of
from crp_integrations.seals import JOURNAL_INFO, SESSION_INFO, derive_key

ETAG_INFO = b"crp-session-etag-v1"
KEY_ID_INFO = b"crp-key-id-v1"
KEY_ID_LENGTH = 16


class ChainKey(bytes):
    """A chain's key of the current epoch, which knows those of the epochs before.

    Printing it shows the id alone, and it is not pickled.

    Attributes:
        key_id: of the master key that it comes from; empty in the first epoch.
        earlier: the keys of the epochs before, oldest first.
    """

    key_id: str
    earlier: tuple[ChainKey, ...]

    def __new__(cls, key: bytes, *, key_id: str = "", earlier: tuple[ChainKey, ...] = ()) -> Self:
        """Name a derived key."""
        made = super().__new__(cls, key)
        made.key_id = key_id
        made.earlier = earlier
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key_id or 'first epoch'})"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled; derive it again from the key ring")


def key_epochs(key: bytes) -> tuple[ChainKey, ...]:
    """The keys of a chain, oldest first; plain bytes are a single epoch's."""
    if not isinstance(key, ChainKey):
        return (ChainKey(key),)
    return (*key.earlier, key)


def key_id(master: bytes) -> str:
    """What names a master key without telling anything of it, `key_` and 16 hexadecimal digits."""
    return "key_" + derive_key(master, salt="", info=KEY_ID_INFO).hex()[:KEY_ID_LENGTH]


def journal_key(keyring: KeyRing, namespace: str) -> ChainKey:
    """The key of a namespace's journal, 32 bytes."""
    return _journal(_masters(keyring), namespace)


def session_key(keyring: KeyRing, session_id: str) -> ChainKey:
    """The key of a session's window chain, 32 bytes.

    Spec: related facts §5
    """
    return _derived(_masters(keyring), session_id, SESSION_INFO)


def etag_salt(keyring: KeyRing, session_id: str) -> str:
    """What salts a session's ETags, 64 hexadecimal digits; nobody without the key can tell it.

    Spec: CRP-SPEC-003 §16.2
    """
    return derive_key(keyring.master(), salt=session_id, info=ETAG_INFO).hex()


def _masters(keyring: KeyRing) -> tuple[bytes, ...]:
    """The master keys of all epochs, oldest first."""
    return (*retired_of(keyring), keyring.master())


# Every window of a namespace is written under the same one.
@lru_cache(maxsize=64)
def _journal(masters: tuple[bytes, ...], namespace: str) -> ChainKey:
    return _derived(masters, namespace, JOURNAL_INFO)


def _derived(masters: tuple[bytes, ...], salt: str, info: bytes) -> ChainKey:
    made: list[ChainKey] = []
    for master in masters:
        # The first epoch has no id: so a store that was never rotated is sealed as it always was.
        name = key_id(master) if made else ""
        key = derive_key(master, salt=salt, info=info)
        made.append(ChainKey(key, key_id=name, earlier=tuple(made)))
    return made[-1]
