"""What a relay keeps in memory only: `no-store` sessions, personal-data checks, receipts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from crp_integrations.dpe.pii.recognisers import find_personal_data
from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.dpe.rejections import unique_claims
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.envelope.records import EarlierWindow, PackedFact
from crp_integrations.envelope.reuse import KnownEnvelopes
from crp_integrations.receipt.records import Receipt
from crp_integrations.seals import sha256_each
from crp_integrations.session.records import Session, WindowNode

# Limits of one session, so that no caller fills the memory with it; the oldest entries go first.
MAX_WINDOWS = 4_096
MOST_CHARACTERS = 1_000_000
MAX_REJECTED = 200


@dataclass(frozen=True, slots=True)
class MemorySession:
    """The state of one session that is kept in memory only.

    Attributes:
        nodes: windows that are not in the store, in the order of their numbers.
    """

    session: Session | None = None
    nodes: tuple[WindowNode, ...] = ()
    priors: dict[str, EarlierWindow] = field(default_factory=dict)
    rejected: tuple[RejectedClaim, ...] = ()


class SessionMemories:
    """The state of `no-store` sessions, and of sessions with windows or facts in memory only.

    Safe under threads.

    Spec: CRP-SPEC-003 §17.1
    """

    def __init__(self, most_sessions: int = 1_000) -> None:
        self._most = most_sessions
        self._sessions: OrderedDict[str, MemorySession] = OrderedDict()
        self._lock = threading.Lock()
        # Locked from reading a session until its new state is kept.
        self._turns = threading.Lock()

    @contextmanager
    def one_by_one(self, *, wanted: bool = True) -> Iterator[list[tuple[Session, WindowNode]]]:
        """Run blocks one at a time; keeps the list's entries if the block ends without error."""
        entries: list[tuple[Session, WindowNode]] = []
        with self._turns if wanted else nullcontext():
            yield entries
            for session, node in entries:
                self.keep(session, node)

    def keep(self, session: Session, node: WindowNode | None = None) -> None:
        """Keep a session's state and a window; above the limit the least recent session goes."""
        with self._lock:
            known = self._sessions.get(session.session_id, MemorySession())
            nodes = known.nodes if node is None else (*known.nodes, node)[-MAX_WINDOWS:]
            self._put(session.session_id, replace(known, session=session, nodes=nodes))

    def keep_prior(self, session_id: str, window: EarlierWindow) -> None:
        """Keep a window's texts; above the limits the session's oldest windows go."""
        with self._lock:
            known = self._sessions.get(session_id, MemorySession())
            priors = {**known.priors, window.window_id: window}
            spare_characters = MOST_CHARACTERS - sum(map(_characters, priors.values()))
            # The last window stays whatever its length: the next one continues it.
            for id_ in [*priors][:-1]:
                if spare_characters >= 0 and len(priors) <= MAX_WINDOWS:
                    break
                spare_characters += _characters(priors.pop(id_))
            self._put(session_id, replace(known, priors=priors))

    def reject(self, session_id: str, claims: Sequence[RejectedClaim]) -> None:
        """Keep claims that a sub-agent's report flags, up to the last `MOST_REJECTED`."""
        if not claims:
            return
        with self._lock:
            known = self._sessions.get(session_id, MemorySession())
            both = unique_claims(known.rejected, claims)[-MAX_REJECTED:]
            self._put(session_id, replace(known, rejected=both))

    def of(self, session_id: str) -> MemorySession:
        """The state of a session; empty for an unknown one."""
        with self._lock:
            return self._sessions.get(session_id, MemorySession())

    def end(self, session_id: str) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(session_id, None)

    def _put(self, session_id: str, state: MemorySession) -> None:
        self._sessions[session_id] = state
        self._sessions.move_to_end(session_id)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)


def _characters(window: EarlierWindow) -> int:
    return len(window.answer) + len(window.summary)


@dataclass(frozen=True, slots=True)
class PersonalFacts:
    """The number of an envelope's facts with personal data, and of those not searched for it.

    Attributes:
        hashes: `sha256:…` of the text of each searched fact, by the fact's id.
    """

    held: int
    unread: int
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def flags(self) -> list[str]:
        """The compliance warning of an envelope that is not under `no-store`."""
        counts = (
            ("personal-facts-without-no-store", self.held),
            ("facts-not-searched", self.unread),
        )
        return [f"{name}={count}" for name, count in counts if count]


class PersonalDataIndex:
    """Caches by hash whether texts contain personal data, since the model of names is slow.

    Safe under threads.
    """

    def __init__(self, most_texts: int = 50_000) -> None:
        self._most = most_texts
        self._known: OrderedDict[str, bool] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, facts: Sequence[PackedFact], settings: PersonalSettings, most_characters: int
    ) -> PersonalFacts:
        """Search an envelope's facts for personal data, up to a number of characters."""
        texts: list[str] = []
        ids: list[str] = []
        unread = 0
        for fact in facts:
            most_characters -= len(fact.content)
            if most_characters < 0:
                unread += 1
            else:
                texts.append(fact.content)
                ids.append(fact.fact_id)
        names = sha256_each([text.encode("utf-8", "surrogatepass") for text in texts])
        with self._lock:
            known = [self._known.get(name) for name in names]
            # The order of last use matters only when the cache is more than half full.
            if 2 * len(self._known) > self._most:
                for name, holds in zip(names, known, strict=True):
                    if holds is not None:
                        self._known.move_to_end(name)
        count = known.count(True)
        if None in known:
            count += sum(
                self._holds(name, text, settings)
                for name, text, holds in zip(names, texts, known, strict=True)
                if holds is None
            )
        return PersonalFacts(count, unread, dict(zip(ids, names, strict=True)))

    def _holds(self, name: str, text: str, settings: PersonalSettings) -> bool:
        """Search a text that is not in the cache."""
        holds = bool(list(find_personal_data(text, settings=settings)))
        with self._lock:
            self._known[name] = holds
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return holds


class IssuedReceipt(NamedTuple):
    """A receipt, and whether the store keeps it."""

    receipt: Receipt
    written: bool


class UnwrittenReceipts:
    """Receipts of windows that are not stored or had facts in memory only. Safe under threads.

    They are in no log, and are dropped with their session, with the relay, or above the maximum.
    """

    def __init__(self, most: int = 1_000) -> None:
        self._most = most
        # By region and id; a region's receipts are readable only in that region.
        self._receipts: OrderedDict[tuple[str, str], Receipt] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, made: IssuedReceipt | None, residency: str) -> str:
        """Keep a receipt unless it was written; returns its id, empty for None."""
        if made is None:
            return ""
        id_ = made.receipt.receipt_id
        if not made.written:
            with self._lock:
                self._receipts[residency, id_] = made.receipt
                while len(self._receipts) > self._most:
                    self._receipts.popitem(last=False)
        return id_

    def find(self, name: str, residency: str) -> Receipt | None:
        """A region's receipt by its id or the id of its window."""
        with self._lock:
            by_id = self._receipts.get((residency, name))
            if by_id is not None:
                return by_id
            newest_first = reversed(self._receipts.items())
            return next(
                (
                    receipt
                    for (region, _), receipt in newest_first
                    if region == residency and receipt.chain.window_id == name
                ),
                None,
            )

    def of_session(self, session_id: str, residency: str) -> list[str]:
        """Ids of a session's receipts in a region, oldest first; an empty name means all."""
        with self._lock:
            return [
                id_
                for (region, id_), receipt in self._receipts.items()
                if region == residency and session_id in ("", receipt.chain.session_id)
            ]

    def end(self, session_id: str) -> None:
        """Forget the receipts of a session, in every region."""
        with self._lock:
            ended = [
                key
                for key, receipt in self._receipts.items()
                if receipt.chain.session_id == session_id
            ]
            for key in ended:
                del self._receipts[key]


@dataclass(frozen=True, slots=True)
class RelayMemory:
    """Everything that a relay keeps in memory only.

    Attributes:
        envelopes: earlier envelopes, for conditional requests.
        sessions: state of `no-store` sessions.
        receipts: receipts that may not be written to disk.
    """

    envelopes: KnownEnvelopes
    sessions: SessionMemories = field(default_factory=SessionMemories)
    personal: PersonalDataIndex = field(default_factory=PersonalDataIndex)
    receipts: UnwrittenReceipts = field(default_factory=UnwrittenReceipts)
