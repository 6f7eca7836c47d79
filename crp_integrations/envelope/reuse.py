"""Earlier envelopes, kept by ETag, and which of them may be reused.

An entry belongs to one tenant, subject, region and session, and only they can find it. Its texts
are dropped as soon as the fabric's state differs; its validators stay, so that a caller learns
what has changed.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from crp_integrations.envelope.budget import EnvelopeInputs
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.rank import age_microseconds
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import ReuseSettings
from crp_integrations.language.memo import forgotten_with
from crp_integrations.records import Record
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import CacheStatus, Changed, GroundingMode, QualityTier, Strategy

ETAG = "etag@1"
SALTED_ETAG = "etag-salted@1"


def etag(fact_ids: Iterable[str], salt: str = "") -> str:
    """Hash a set of fact ids; their order does not matter.

    Spec: CRP-SPEC-003 §7.5, §16.2
    """
    ids = sorted(fact_ids)
    plain = "|".join(ids) + "|" + str(len(ids))
    return sha256(f"{salt}|{plain}" if salt else plain)


class Validators(Record):
    """Everything that an envelope depends on, as hashes and numbers, without texts.

    Spec: CRP-SPEC-003 §11.3 (decision E12)

    Attributes:
        state_hash: hash of all namespaces read, the region's own and the shared ones.
        readable: number of facts the subject may retrieve; it changes if the guard's rules do.
        decomposition: hash of the question and its information needs, in their order.
        embedder, tokenizer: identities of the engines.
        budget_tokens: maximum tokens of the envelope.
        automatic: whether the envelope uses only the tokens that the question needs.
        settings_digest: hash of every setting: weights, packing, ordering, thresholds.
        guard: name of the guard that decides about access.
        policy: the safety policy in force; empty for an envelope that no policy applies to.
        packing, layout: names of the algorithms in force.
        prompt: hash of the prompt around the envelope and of the model's parameters, since an
            earlier answer is valid for these alone.
        prior: hash of the earlier windows that the request continues.
        judge: hash of the judge and its parameters, empty without one; another judge might rate
            an earlier answer differently.
    """

    SCHEMA = "validators/1"

    state_hash: str
    readable: int
    decomposition: str
    embedder: str
    model: str
    tokenizer: str
    budget_tokens: int
    settings_digest: str
    grounding: GroundingMode
    strategy: Strategy
    guard: str = ""
    policy: str = ""
    k: int | None = None
    max_age_seconds: int | None = None
    packing: str = ""
    layout: str = ""
    prompt: str = ""
    prior: str = ""
    automatic: bool = False
    judge: str = ""

    def reasons(self, earlier: Validators) -> tuple[Changed, ...]:
        """What differs from an earlier envelope's validators; empty when nothing does."""
        changed = (
            word for name, word in CHANGES.items() if getattr(self, name) != getattr(earlier, name)
        )
        return tuple(dict.fromkeys(changed))

    def selects_like(self, earlier: Validators) -> bool:
        """Whether Phase 1 would select the same candidates again.

        Spec: CRP-SPEC-003 §5.3
        """
        return not SELECTION_CHANGES.intersection(self.reasons(earlier))


# Field → the word for its change, in the order in which changes are reported.
CHANGES: Final = MappingProxyType(
    {
        "state_hash": Changed.FACTS,
        "readable": Changed.ACCESS,
        "guard": Changed.ACCESS,
        "decomposition": Changed.DECOMPOSITION,
        "embedder": Changed.EMBEDDER,
        "model": Changed.MODEL,
        "tokenizer": Changed.TOKENIZER,
        "budget_tokens": Changed.BUDGET,
        "automatic": Changed.BUDGET,
        "settings_digest": Changed.SETTINGS,
        "grounding": Changed.GROUNDING,
        "strategy": Changed.STRATEGY,
        "policy": Changed.POLICY,
        "k": Changed.K,
        "max_age_seconds": Changed.MAX_AGE,
        "packing": Changed.PACKING,
        "layout": Changed.LAYOUT,
        "prompt": Changed.PROMPT,
        "prior": Changed.PRIOR,
        "judge": Changed.JUDGE,
    }
)
# Changes that affect Phase 1; PRIOR does, as the facts deferred by earlier windows are read too.
SELECTION_CHANGES: Final = frozenset(
    {
        Changed.FACTS,
        Changed.ACCESS,
        Changed.DECOMPOSITION,
        Changed.EMBEDDER,
        Changed.SETTINGS,
        Changed.PRIOR,
    }
)


def decomposition_hash(query: str, sub_queries: Sequence[str]) -> str:
    """`sha256:` hash of a question and its sub-queries."""
    return sha256(json.dumps([query, *sub_queries]))


# Memory of a fact besides its text, measured with vectors of 384 dimensions.
CANDIDATE_BYTES: Final = 2_500
PACKED_BYTES: Final = 2_000
# Used instead of an ETag, it matches any envelope that is kept.
ANY_ETAG = "*"


@dataclass(frozen=True, slots=True)
class EnvelopeScope:
    """The owner of an envelope; an entry is not found from another scope.

    Spec: CRP-SPEC-003 §16.1
    """

    tenant: str
    subject: str
    residency: str
    session_id: str


@dataclass(frozen=True, slots=True)
class KnownEnvelope:
    """An earlier envelope.

    Attributes:
        envelope, candidates: None after the fabric's state has changed.
        headers: headers of the window released with it; None after only a preview.
        kept_at: time at which it was stored here.
        tier: tier of the envelope before its answer lowered it; None if it did not.
        made: inputs of the envelope; None where they are not known.
    """

    validators: Validators
    envelope: Envelope | None
    candidates: Candidates | None
    headers: Mapping[str, str] | None
    kept_at: datetime
    tier: QualityTier | None = None
    made: EnvelopeInputs | None = None

    @property
    def bytes(self) -> int:
        """Approximate memory of the entry's facts, with their vectors and columns."""
        if self.envelope is None or self.candidates is None:
            return 0
        texts = len(self.envelope.text) + sum(len(fact.content) for fact in self.candidates.facts)
        selected, packed = len(self.candidates.facts), len(self.envelope.facts)
        return texts + selected * CANDIDATE_BYTES + packed * PACKED_BYTES


@dataclass(frozen=True, slots=True)
class ReuseMatch:
    """The result of a conditional request.

    Attributes:
        status: HIT or MISS; None when the request was not conditional.
        reasons: why it is not a hit, in the order of `Changed`.
        known: the envelope with the requested ETag, if there is one.
    """

    status: CacheStatus | None = None
    reasons: tuple[Changed, ...] = ()
    known: KnownEnvelope | None = None


_Key = tuple[EnvelopeScope, str, Validators]
_Place = tuple[str, str]


class KnownEnvelopes:
    """Earlier envelopes, least recently used first; bounded, in memory alone, thread-safe.

    Spec: CRP-SPEC-003 §5.3, §11
    """

    def __init__(self, settings: ReuseSettings) -> None:
        self._settings = settings
        self._entries: OrderedDict[_Key, KnownEnvelope] = OrderedDict()
        # Each entry's bytes, computed once; 0 for an entry whose texts were dropped.
        self._sizes: dict[_Key, int] = {}
        # The state that the texts of each tenant's entries are of.
        self._states: dict[_Place, str] = {}
        self._lock = threading.Lock()
        _KNOWN.add(self)

    def __len__(self) -> int:
        """Number of entries."""
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Approximate memory of all entries."""
        return sum(self._sizes.values())

    def remember(
        self,
        scope: EnvelopeScope,
        validators: Validators,
        envelope: Envelope,
        candidates: Candidates,
        now: datetime,
        headers: Mapping[str, str] | None = None,
        *,
        present: str | None = None,
        tier: QualityTier | None = None,
        made: EnvelopeInputs | None = None,
    ) -> None:
        """Keep an envelope; if there are too many, the least recently used ones are dropped."""
        if not self._settings.envelopes:
            return
        key = (scope, envelope.etag, validators)
        with self._lock:
            state_hash = validators.state_hash if present is None else present
            self._drop_old_texts(scope, state_hash)
            before = self._entries.get(key)
            if headers is None and before is not None and before.headers is not None:
                # A preview does not replace the entry of a released answer.
                self._entries.move_to_end(key)
                return
            self._drop(key)
            self._put(
                key, KnownEnvelope(validators, envelope, candidates, headers, now, tier, made)
            )
            if validators.state_hash != state_hash:
                self._drop_texts(key)
            limits = self._settings
            while len(self._entries) > limits.envelopes or self.bytes > limits.bytes:
                self._drop(next(iter(self._entries)))

    def match(
        self,
        scope: EnvelopeScope,
        if_match: str,
        validators: Validators,
        now: datetime,
        *,
        no_cache: bool = False,
        holds: bool = False,
    ) -> ReuseMatch:
        """Evaluate a conditional request before Select; `holds`: the session has facts of its own.

        Spec: CRP-SPEC-003 §5.3, §11.2, §11.4 (decision E12)
        """
        if not if_match:
            return ReuseMatch()
        if no_cache:
            return ReuseMatch(CacheStatus.MISS, (Changed.NO_CACHE,))
        if holds:
            return ReuseMatch(CacheStatus.MISS, (Changed.HELD,))
        with self._lock:
            self._drop_old_texts(scope, validators.state_hash)
            keys = [k for k in self._entries if k[0] == scope and if_match in (k[1], ANY_ETAG)]
            known = [key for key in keys if not self._expired(self._entries[key], now)]
            for key in keys:
                if key not in known:
                    self._drop(key)
            if not known:
                return ReuseMatch(CacheStatus.MISS, (Changed.EXPIRED if keys else Changed.UNKNOWN,))
            equal = [key for key in known if key[2] == validators]
            meant = (equal or known)[-1]
            self._entries.move_to_end(meant)
            entry = self._entries[meant]
        reasons = validators.reasons(entry.validators)
        if not reasons and _crosses_age_limit(entry, validators.max_age_seconds, now):
            reasons = (Changed.MAX_AGE,)
        if not reasons and entry.envelope is None:
            reasons = (Changed.EXPIRED,)
        if not reasons:
            return ReuseMatch(CacheStatus.HIT, (), entry)
        return ReuseMatch(CacheStatus.MISS, reasons, entry)

    def end(self, session_id: str) -> int:
        """Drop all entries of a session and return their number."""
        with self._lock:
            gone = [key for key in self._entries if key[0].session_id == session_id]
            for key in gone:
                self._drop(key)
        return len(gone)

    def forget(self) -> None:
        """Drop the texts of all entries, as one may have been erased."""
        with self._lock:
            for key in self._entries:
                self._drop_texts(key)

    # --- called with the lock acquired -------------------------------------------------

    def _drop_texts(self, key: _Key) -> None:
        self._sizes[key] = 0
        self._entries[key] = replace(
            self._entries[key], envelope=None, candidates=None, headers=None, made=None
        )

    def _put(self, key: _Key, known: KnownEnvelope) -> None:
        self._entries[key] = known
        self._sizes[key] = known.bytes

    def _drop(self, key: _Key) -> None:
        self._entries.pop(key, None)
        self._sizes.pop(key, None)

    def _drop_old_texts(self, scope: EnvelopeScope, state_hash: str) -> None:
        """Drop the texts of a tenant's entries of another state, as one may have been erased."""
        place = _place(scope)
        if self._states.get(place) == state_hash:
            return
        if len(self._states) >= self._settings.envelopes:
            self._states.clear()
        self._states[place] = state_hash
        for key, known in self._entries.items():
            if (
                known.envelope is not None
                and _place(key[0]) == place
                and known.validators.state_hash != state_hash
            ):
                self._drop_texts(key)

    def _expired(self, known: KnownEnvelope, now: datetime) -> bool:
        return now - known.kept_at > timedelta(seconds=self._settings.lifetime_seconds)


_KNOWN: weakref.WeakSet[KnownEnvelopes] = weakref.WeakSet()


def _forget_all() -> None:
    for known in list(_KNOWN):
        known.forget()


forgotten_with(_forget_all)


def _place(scope: EnvelopeScope) -> _Place:
    return scope.tenant, scope.residency


def _crosses_age_limit(known: KnownEnvelope, max_age_seconds: int | None, now: datetime) -> bool:
    """Whether a fact has passed the age limit since the envelope was made."""
    if max_age_seconds is None or known.envelope is None or known.candidates is None:
        return False
    limit, then = max_age_seconds * 1_000_000, known.envelope.created_at
    return any(
        age_microseconds(fact, then) <= limit < age_microseconds(fact, now)
        for fact in known.candidates.facts
    )
