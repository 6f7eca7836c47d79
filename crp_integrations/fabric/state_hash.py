"""The state hash of a namespace, and its counters: epoch, facts since the last reclustering.

`state_hash` is the formula of the specification. `StateHash` computes the same value after a change
from the items of the previous state, so that the store need not be read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.settings import CommunitySettings
from crp_integrations.seals import iso, sha256
from crp_integrations.vocabulary import RETRIEVABLE

Item = tuple[str, str, str]


def state_hash(items: Iterable[Item]) -> str:
    """Hash the sorted `id:content_hash:status` of every retrievable fact, joined with `|`.

    Spec: CRP-SPEC-009 §6.1

    The content hash is used as stored, including the prefix `sha256:`. Sorting is by code point.
    A fabric without facts has the hash of the empty text.

    Args:
        items: id, content hash and status of each ACTIVE or STALE fact, in any order.

    Returns:
        `sha256:` and 64 hexadecimal digits.

    >>> from crp_integrations.seals import sha256
    >>> state_hash([("b", "sha256:2", "STALE"), ("a", "sha256:1", "ACTIVE")]) == sha256(
    ...     "a:sha256:1:ACTIVE|b:sha256:2:STALE"
    ... )
    True
    """
    return _hashed(":".join(item) for item in items)


def _hashed(joined_items: Iterable[str]) -> str:
    return sha256("|".join(sorted(joined_items)))


class StateHash:
    """The state hash of one state, with the items needed to compute the next one.

    It is immutable, so a transaction that is rolled back leaves the earlier value unchanged.

    Spec: CRP-SPEC-009 §6.1

    Attributes:
        digest: `sha256:` and 64 hexadecimal digits, equal to the result of `state_hash`.
        epoch: the item that `epoch_item` returns; None for none.
    """

    __slots__ = ("_joined", "digest", "epoch")

    def __init__(self, items: Iterable[Item] = (), epoch: Item | None = None) -> None:
        self._take({item[0]: ":".join(item) for item in items}, epoch)

    def _take(self, joined: dict[str, str], epoch: Item | None) -> None:
        # The epoch is stored apart from the facts, so that no fact id can collide with it.
        self._joined, self.epoch = joined, epoch
        self.digest = _hashed([*joined.values(), *([":".join(epoch)] if epoch else [])])

    def __len__(self) -> int:
        return len(self._joined)

    def changed(
        self, removed: Iterable[str], items: Iterable[Item], epoch: Item | None
    ) -> StateHash:
        """Return the hash after facts were removed, added or changed, with the new epoch item."""
        joined = self._joined.copy()
        for id_ in removed:
            joined.pop(id_, None)
        joined.update((item[0], ":".join(item)) for item in items)
        if joined == self._joined and epoch == self.epoch:
            return self
        made = object.__new__(StateHash)
        made._take(joined, epoch)
        return made


def combine_state_hashes(own: str, shared: Iterable[str]) -> str:
    """Hash the sorted state hashes, joined with `|`; without shared ones return the own hash.

    Spec: CRP-SPEC-009 §9.2 (decision E13)

    Args:
        own: state hash of the tenant's namespace.
        shared: state hash of each shared namespace that the tenant reads.

    Returns:
        `sha256:` and 64 hexadecimal digits.

    >>> both = combine_state_hashes("sha256:b", ["sha256:c", "sha256:a"])
    >>> both == sha256("sha256:a|sha256:b|sha256:c")
    True
    >>> combine_state_hashes("sha256:b", [])
    'sha256:b'
    """
    others = list(shared)
    return sha256("|".join(sorted([own, *others]))) if others else own


WAY_OUT = "crp fabric doctor lists other damage; to repair the store, restore an earlier copy of it"


def stored_number(facts: FactsFacet, name: str) -> int:
    """Return the number stored in a setting; 0 if it is not set."""
    stored = facts.setting(name)
    try:
        return int(stored or 0)
    except ValueError as error:
        raise StoreDamaged(
            f"the stored {name} is {stored!r:.40}, wanted a number; {WAY_OUT}"
        ) from error


def stored_moment(facts: FactsFacet, name: str) -> datetime | None:
    """Return the moment stored in a setting; None if it is not set."""
    stored = facts.setting(name)
    if stored is None:
        return None
    try:
        moment = datetime.fromisoformat(stored)
    except ValueError as error:
        raise StoreDamaged(
            f"the stored {name} is {stored!r:.40}, wanted a moment; {WAY_OUT}"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


EMBEDDER_SETTING = "embedder"
EPOCH_SETTING = "epoch"


def advance_epoch(facts: FactsFacet) -> int:
    """Add one to the epoch, in the transaction of the change that requires it.

    Spec: CRP-SPEC-009 §3.4, §5.5, §6.2
    """
    number = read_epoch(facts) + 1
    facts.set_setting(EPOCH_SETTING, str(number))
    return number


def read_epoch(facts: FactsFacet) -> int:
    """Return the epoch: how often it was advanced."""
    return stored_number(facts, EPOCH_SETTING)


def epoch_item(facts: FactsFacet) -> Item | None:
    """Return the item of the state hash for epoch and embedder; None while the epoch is 0.

    Spec: CRP-SPEC-009 §6.1
    """
    number = read_epoch(facts)
    if number == 0:
        return None
    return ("@epoch", str(number), facts.setting(EMBEDDER_SETTING) or "")


_DAY = timedelta(days=1)
# Moment of the last reclustering; code that removes communities also removes this setting.
RECLUSTERED_SETTING = "reclustered_at"
NEW_FACTS_SETTING = "facts_since_recluster"
# Number of communities after the last reclustering; set only if there was a reclustering.
COMMUNITIES_SETTING = "communities"
# Number of reclusterings; a run that began before the last one finished must not overwrite it.
TIMES_SETTING = "reclusterings"


def note_new_facts(facts: FactsFacet, count: int) -> None:
    """Add to the count of new facts, in the transaction that adds the facts."""
    if count:
        facts.set_setting(NEW_FACTS_SETTING, str(stored_number(facts, NEW_FACTS_SETTING) + count))


def note_reclustering(facts: FactsFacet, now: datetime, communities: int, new: int) -> None:
    """Record a reclustering and reset the count of new facts, in its transaction."""
    facts.set_setting(RECLUSTERED_SETTING, iso(now))
    facts.set_setting(NEW_FACTS_SETTING, str(new))
    facts.set_setting(COMMUNITIES_SETTING, str(communities))
    facts.set_setting(TIMES_SETTING, str(times_found(facts) + 1))


def times_found(facts: FactsFacet) -> int:
    """Return the number of reclusterings so far."""
    return stored_number(facts, TIMES_SETTING)


def communities_found(facts: FactsFacet) -> int:
    """Return the number of communities after the last reclustering; 0 before the first."""
    return stored_number(facts, COMMUNITIES_SETTING)


def reclustering_due_after_ingestion(facts: FactsFacet, settings: CommunitySettings) -> bool:
    """Whether enough facts were added since communities were last found.

    Spec: CRP-SPEC-009 §5.5
    """
    new = stored_number(facts, NEW_FACTS_SETTING)
    if new < settings.recluster_after:
        return False
    return new >= settings.recluster_share * retrievable(facts)


def reclustering_due(facts: FactsFacet, settings: CommunitySettings, now: datetime) -> bool:
    """Whether communities are due to be recomputed at this moment.

    Spec: CRP-SPEC-009 §5.5
    """
    if retrievable(facts) < settings.min_size:
        return False
    if reclustering_due_after_ingestion(facts, settings):
        return True
    last = stored_moment(facts, RECLUSTERED_SETTING)
    if last is not None:
        return (now - last) / _DAY >= settings.recluster_days
    if facts.setting(COMMUNITIES_SETTING) is not None:
        return True
    try:
        since = now - timedelta(days=settings.recluster_days)
    except OverflowError:
        return False
    return bool(facts.find(Where(ingested_before=since)))


def retrievable(facts: FactsFacet) -> int:
    """Return the number of retrievable facts, by the counts of each status."""
    tally = facts.tally()
    return sum(tally.get(status, 0) for status in RETRIEVABLE)
