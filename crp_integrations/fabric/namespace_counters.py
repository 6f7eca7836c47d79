"""Counters of a namespace: its epoch, facts since the last reclustering, and when one is due.

The epoch counts changes that no single fact shows but the state hash must: a reclustering gives
facts other labels, and a change of embedder other vectors. Once it was advanced the hash has one
item more, `@epoch:n:model` (decision E13).

Spec: CRP-SPEC-009 §5.5, §6.2
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.settings import CommunitySettings
from crp_integrations.fabric.state_hash import Item
from crp_integrations.seals import iso
from crp_integrations.vocabulary import RETRIEVABLE

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
        found = datetime.fromisoformat(stored)
    except ValueError as error:
        raise StoreDamaged(
            f"the stored {name} is {stored!r:.40}, wanted a moment; {WAY_OUT}"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


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
