"""When communities are found anew: after enough new facts, and after enough days.

Spec: CRP-SPEC-009 §5.5
"""

from __future__ import annotations

from datetime import datetime, timedelta

from crp_integrations.fabric.kept import moment, number
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.settings import CommunitySettings
from crp_integrations.seals import iso
from crp_integrations.vocabulary import RETRIEVABLE

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
        facts.set_setting(NEW_FACTS_SETTING, str(number(facts, NEW_FACTS_SETTING) + count))


def note_reclustering(facts: FactsFacet, now: datetime, communities: int, new: int) -> None:
    """Begin to count again, in the transaction of a reclustering.

    Args:
        new: facts that were added while it went on.
    """
    facts.set_setting(RECLUSTERED_SETTING, iso(now))
    facts.set_setting(NEW_FACTS_SETTING, str(new))
    facts.set_setting(COMMUNITIES_SETTING, str(communities))
    facts.set_setting(TIMES_SETTING, str(times_found(facts) + 1))


def times_found(facts: FactsFacet) -> int:
    """How often communities were found; 0 before the first time."""
    return number(facts, TIMES_SETTING)


def communities_found(facts: FactsFacet) -> int:
    """How many communities the last reclustering left; 0 before the first."""
    return number(facts, COMMUNITIES_SETTING)


def due_after_ingestion(facts: FactsFacet, settings: CommunitySettings) -> bool:
    """Whether enough facts were added since communities were last found.

    Spec: CRP-SPEC-009 §5.5
    """
    new = number(facts, NEW_FACTS_SETTING)
    if new < settings.recluster_after:
        return False
    return new >= settings.recluster_share * _retrievable(facts)


def due(facts: FactsFacet, settings: CommunitySettings, now: datetime) -> bool:
    """Whether communities are to be found anew at this moment.

    So they are when the last time is long enough ago, when their labels were taken away, when as
    many facts came as an ingestion waits for, and when they were never found although there have
    been facts for as long.

    Spec: CRP-SPEC-009 §5.5
    """
    if _retrievable(facts) < settings.min_size:
        return False
    if due_after_ingestion(facts, settings):
        return True
    last = moment(facts, RECLUSTERED_SETTING)
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
