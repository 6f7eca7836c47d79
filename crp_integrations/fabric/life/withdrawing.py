"""What sessions keep goes with the facts that it was said with, or with time.

A window's answer and report hold words of the facts that were shown. They are removed in the
transaction that withdraws the facts; what tenants said with facts of a shared namespace lies in
their own namespaces, and goes before the facts do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime

from crp_integrations.audit.drafts import EventDraft, name_or_hash
from crp_integrations.audit.journal import append_events
from crp_integrations.errors import StoreBusy
from crp_integrations.fabric.kept import number
from crp_integrations.fabric.life.writing import Writing
from crp_integrations.fabric.ports import FactsFacet, Transaction, shown_in
from crp_integrations.seals import iso
from crp_integrations.vocabulary import EventType

# How often bytes of what was said were left in the files since they were last taken off.
WINDOWS_SETTING = "scrub_windows"


def withdraw(
    transaction: Transaction, ids: Sequence[str], now: datetime, *, source_id: str = ""
) -> bool:
    """Take what was said with some facts, within the transaction that withdraws them.

    Returns:
        Whether anything was; its bytes are then to be taken off the disk.
    """
    shown = shown_in(transaction)
    if shown is None or not shown.withdraw(ids, now, source_id=source_id):
        return False
    _note(transaction.facts)
    return True


def withdraw_elsewhere(
    writing: Writing, ids: Sequence[str], now: datetime, *, source_id: str = ""
) -> bool:
    """Take what other namespaces said with facts of this one, each in a transaction of its own.

    It is done before the facts go: killed in between, too much is gone and nothing is left. From
    then on nothing that is under way there keeps anything of them.

    Returns:
        False when some bytes wait for maintenance, since a reader or a writer forbade it.

    Raises:
        StoreBusy: another process held a namespace's write lock for too long.
    """
    clean = True
    for reader in writing.readers():
        with reader.begin() as transaction:
            taken = withdraw(transaction, ids, now, source_id=source_id)
        if taken:
            clean = _scrubbed(reader.begin, reader.scrub) and clean
    return clean


def forget_sessions(
    writing: Writing,
    choose: Callable[[Transaction], Sequence[str]],
    cause: str,
) -> list[str]:
    """Remove sessions with all that they said, and tell the journal.

    Args:
        choose: ids of those that are meant, asked for in the transaction; unknown ones do nothing.
        cause: one word for the journal.

    Returns:
        Ids of those that were there.
    """
    now = writing.clock.now()
    key = writing.key()
    with writing.begin(True) as transaction:
        shown = shown_in(transaction)
        if shown is None:
            return []
        gone = [id_ for id_ in choose(transaction) if shown.forget(id_)]
        if gone:
            kind = EventType.SESSION_TERMINATED
            # A name that looks like no id stands in no event of its windows either.
            drafts = [
                EventDraft(kind, {"cause": cause}, session_id=name_or_hash(id_)) for id_ in gone
            ]
            append_events(transaction.journal, key, drafts, iso(now))
            _note(transaction.facts)
    if gone:
        writing.erase_elsewhere(gone)
    return gone


def windows_due(facts: FactsFacet) -> bool:
    """Whether bytes of what was said may be in the files."""
    return facts.setting(WINDOWS_SETTING) is not None


def windows_scrubbed(writing: Writing) -> bool:
    """Take the bytes of what was said off the disk; the index's files hold none of them.

    Returns:
        False when a reader or another writer forbids it now; `maintain` tries again.
    """
    with writing.begin(False) as transaction:
        if not windows_due(transaction.facts):
            return True
    return _scrubbed(lambda: writing.begin(True), writing.scrub)


def _scrubbed(
    begin: Callable[[], AbstractContextManager[Transaction]], scrub: Callable[[], bool]
) -> bool:
    try:
        with begin() as transaction:
            pending = transaction.facts.setting(WINDOWS_SETTING)
        clean = scrub()
        if clean and pending is not None:
            with begin() as transaction:
                # Another removal may have come after the scrubbing; it then stays noted.
                if transaction.facts.setting(WINDOWS_SETTING) == pending:
                    transaction.facts.remove_setting(WINDOWS_SETTING)
    except StoreBusy:
        return False
    return clean


def _note(facts: FactsFacet) -> None:
    facts.set_setting(WINDOWS_SETTING, str(number(facts, WINDOWS_SETTING) + 1))
