"""The state hash of a namespace, and its counters: epoch, facts since the last reclustering.

`state_hash` is the formula as it is printed. `StateHash` gives the same value after a change from
the items of the state before, so that the store need not be read again.
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

    The content hash enters as it is stored, `sha256:` and the digits included. Sorting is by
    code point. A fabric without facts has the hash of the empty text.

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
    """The state hash of one state, from which that of the next one is made without reading it.

    Nothing of it changes after it is made: a transaction that is undone leaves the earlier value
    as it was.

    Spec: CRP-SPEC-009 §6.1

    Attributes:
        digest: `sha256:` and 64 hexadecimal digits, bit for bit that of the formula.
        epoch: the item that is no fact's, as `epoch_item` makes it; None for none.
    """

    __slots__ = ("_joined", "digest", "epoch")

    def __init__(self, items: Iterable[Item] = (), epoch: Item | None = None) -> None:
        self._take({item[0]: ":".join(item) for item in items}, epoch)

    def _take(self, joined: dict[str, str], epoch: Item | None) -> None:
        # The epoch is no entry of its own, so no fact's id can mean it.
        self._joined, self.epoch = joined, epoch
        self.digest = _hashed([*joined.values(), *([":".join(epoch)] if epoch else [])])

    def __len__(self) -> int:
        return len(self._joined)

    def changed(
        self, removed: Iterable[str], items: Iterable[Item], epoch: Item | None
    ) -> StateHash:
        """The hash after facts came, went or became others, with the epoch's item of then."""
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
    """Hash the sorted state hashes, joined with `|`; without shared ones the own hash as it is.

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


WAY_OUT = (
    "crp fabric doctor says what else is wrong, and a copy of the store from before is the way back"
)


def stored_number(facts: FactsFacet, name: str) -> int:
    """The number that a setting holds; 0 for none."""
    stored = facts.setting(name)
    try:
        return int(stored or 0)
    except ValueError as error:
        raise StoreDamaged(
            f"the stored {name} is {stored!r:.40}, wanted a number; {WAY_OUT}"
        ) from error


def stored_moment(facts: FactsFacet, name: str) -> datetime | None:
    """The moment that a setting holds; None for none."""
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
    """Add one to the epoch, in the transaction of the change that asks for it.

    Spec: CRP-SPEC-009 §3.4, §5.5, §6.2
    """
    number = read_epoch(facts) + 1
    facts.set_setting(EPOCH_SETTING, str(number))
    return number


def read_epoch(facts: FactsFacet) -> int:
    """How often the epoch was advanced."""
    return stored_number(facts, EPOCH_SETTING)


def epoch_item(facts: FactsFacet) -> Item | None:
    """The item of the state hash that is no fact's; None while the epoch is 0.

    Spec: CRP-SPEC-009 §6.1
    """
    number = read_epoch(facts)
    if number == 0:
        return None
    return ("@epoch", str(number), facts.setting(EMBEDDER_SETTING) or "")


_DAY = timedelta(days=1)
# Moment of the last reclustering; whoever takes communities away removes it.
RECLUSTERED_SETTING = "reclustered_at"
NEW_FACTS_SETTING = "facts_since_recluster"
# How many communities the last reclustering left; its presence says that there was one.
COMMUNITIES_SETTING = "communities"
# How often communities were found; who began before the last time does not write over it.
TIMES_SETTING = "reclusterings"


def note_new_facts(facts: FactsFacet, count: int) -> None:
    """Count facts that were added, in the transaction that adds them."""
    if count:
        facts.set_setting(NEW_FACTS_SETTING, str(stored_number(facts, NEW_FACTS_SETTING) + count))


def note_reclustering(facts: FactsFacet, now: datetime, communities: int, new: int) -> None:
    """Begin to count again, in the transaction of a reclustering."""
    facts.set_setting(RECLUSTERED_SETTING, iso(now))
    facts.set_setting(NEW_FACTS_SETTING, str(new))
    facts.set_setting(COMMUNITIES_SETTING, str(communities))
    facts.set_setting(TIMES_SETTING, str(times_found(facts) + 1))


def times_found(facts: FactsFacet) -> int:
    """How often communities were found; 0 before the first time."""
    return stored_number(facts, TIMES_SETTING)


def communities_found(facts: FactsFacet) -> int:
    """How many communities the last reclustering left; 0 before the first."""
    return stored_number(facts, COMMUNITIES_SETTING)


def reclustering_due_after_ingestion(facts: FactsFacet, settings: CommunitySettings) -> bool:
    """Whether enough facts were added since communities were last found.

    Spec: CRP-SPEC-009 §5.5
    """
    new = stored_number(facts, NEW_FACTS_SETTING)
    if new < settings.recluster_after:
        return False
    return new >= settings.recluster_share * _retrievable(facts)


def reclustering_due(facts: FactsFacet, settings: CommunitySettings, now: datetime) -> bool:
    """Whether communities are to be found anew at this moment.

    Spec: CRP-SPEC-009 §5.5
    """
    if _retrievable(facts) < settings.min_size:
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


def _retrievable(facts: FactsFacet) -> int:
    tally = facts.tally()
    return sum(tally.get(status, 0) for status in RETRIEVABLE)
