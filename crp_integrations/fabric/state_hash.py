"""The state hash of a namespace, and its counters: epoch, facts since the last reclustering.

`state_hash` is the formula as it is printed. `read_state` gives the same value from facts as a
store lists them, holding one block at a time. `StateHash` gives it after a change without hashing
everything again: the sorted items lie in blocks, the state of SHA-256 before each block is kept,
and a change hashes on from the first block that it touches.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import Protocol

from crp_integrations.errors import StoreDamaged
from crp_integrations.fabric.ports import FactsFacet
from crp_integrations.fabric.records import Where
from crp_integrations.fabric.settings import CommunitySettings
from crp_integrations.seals import iso, sha256
from crp_integrations.vocabulary import RETRIEVABLE

Item = tuple[str, str, str]

# Items of a block as it is made; a block is cut in two above twice as many. Few items make a small
# change cheap, many make the list of blocks short.
BLOCK_ITEMS = 512
_SEPARATOR = b"|"


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
    joined = sorted(":".join(item) for item in items)
    whole = hashlib.sha256()
    # Block by block, since the text of all together can take a hundred megabytes.
    for start in range(0, len(joined), BLOCK_ITEMS):
        block = "|".join(joined[start : start + BLOCK_ITEMS])
        whole.update(f"|{block}".encode() if start else block.encode())
    return f"sha256:{whole.hexdigest()}"


class _Sha256(Protocol):
    def update(self, data: bytes, /) -> None: ...

    def copy(self) -> _Sha256: ...

    def hexdigest(self) -> str: ...


# An item as it is hashed: joined, in UTF-8, whose order of bytes is that of code points; and the
# length of the id at its beginning, 0 for the item of the epoch, so that no id can mean it.
_Entry = tuple[bytes, int]


class _Block:
    """Sorted items, joined; never changed after it is made."""

    __slots__ = ("_ends", "_id_bytes", "first", "joined")

    def __init__(self, entries: list[_Entry]) -> None:
        texts = [text for text, _ in entries]
        self.first = texts[0]
        self.joined = _SEPARATOR.join(texts)
        # The separator stands behind each item but the last.
        self._ends = array("I", accumulate(len(text) + 1 for text in texts))
        lengths = {id_bytes for _, id_bytes in entries}
        # Ids made here are all of one length, which is then told once.
        self._id_bytes = (
            lengths.pop() if len(lengths) == 1 else array("I", (own for _, own in entries))
        )

    def __len__(self) -> int:
        return len(self._ends)

    def entries(self) -> list[_Entry]:
        own = self._id_bytes
        lengths = [own] * len(self) if isinstance(own, int) else own
        starts = [0, *self._ends[:-1]]
        return [
            (self.joined[start : end - 1], id_bytes)
            for start, end, id_bytes in zip(starts, self._ends, lengths, strict=True)
        ]


class StateHash:
    """The state hash of one state, from which that of the next one is made.

    Nothing of it changes after it is made, and the next one shares the blocks that are equal: a
    transaction that is undone leaves the earlier value as it was.

    Spec: CRP-SPEC-009 §6.1

    Attributes:
        digest: `sha256:` and 64 hexadecimal digits, bit for bit that of the formula.
        epoch: the item that is no fact's, as `epoch_item` makes it; None for none.
    """

    __slots__ = ("_blocks", "_states", "digest", "epoch")

    def __init__(self, items: Iterable[Item] = (), epoch: Item | None = None) -> None:
        entries = [_entry(item) for item in items]
        if epoch is not None:
            entries.append((_joined(epoch), 0))
        # Facts come sorted by id, which is nearly the order of their items.
        entries.sort()
        self.epoch = epoch
        self._blocks: list[_Block] = list(_cuts(iter(entries)))
        self._states: list[_Sha256] = []
        self.digest = self._hashed()

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks) - (self.epoch is not None)

    def changed(self, removed: Iterable[str], items: Iterable[Item]) -> StateHash:
        """The hash after facts came, went or became others."""
        new = [_entry(item) for item in items]
        gone = {id_.encode() for id_ in removed} | {text[:id_bytes] for text, id_bytes in new}
        return self._replaced([(id_ + b":", len(id_)) for id_ in gone], new, self.epoch)

    def with_epoch(self, epoch: Item | None) -> StateHash:
        """The same facts with another item of the epoch."""
        if epoch == self.epoch:
            return self
        gone = [] if self.epoch is None else [(_joined(self.epoch), 0)]
        new = [] if epoch is None else [(_joined(epoch), 0)]
        return self._replaced(gone, new, epoch)

    def _replaced(
        self, gone: list[tuple[bytes, int]], new: list[_Entry], epoch: Item | None
    ) -> StateHash:
        """Remove the entries that begin like `gone`, add `new`, and rewrite only their blocks."""
        firsts = [block.first for block in self._blocks]
        sought: dict[int, list[_Entry]] = {}
        added: dict[int, list[_Entry]] = {}
        for where, entries in ((sought, gone), (added, new)):
            for entry in entries:
                place = max(0, bisect_right(firsts, entry[0]) - 1)
                where.setdefault(place, []).append(entry)

        blocks: list[_Block] = []
        unchanged = len(self._blocks)
        # Block by block, since a change may touch all of them and an opened block is large.
        for place, block in enumerate(self._blocks):
            taken: set[int] = set()
            entries = block.entries() if place in sought or place in added else []
            for prefix, id_bytes in sought.get(place, ()):
                at = _place(entries, prefix, id_bytes)
                if at is not None:
                    taken.add(at)
                elif place + 1 < len(firsts) and firsts[place + 1].startswith(prefix):
                    sought.setdefault(place + 1, []).append((prefix, id_bytes))
            if not taken and place not in added:
                blocks.append(block)
                continue
            unchanged = min(unchanged, place)
            left = [entry for at, entry in enumerate(entries) if at not in taken]
            blocks += _cut(sorted(left + added.get(place, [])))
        if not self._blocks and new:
            blocks = _cut(sorted(new))
        elif unchanged == len(self._blocks) and epoch == self.epoch:
            return self

        made = object.__new__(StateHash)
        made.epoch = epoch
        made._blocks = blocks
        # The state before block n depends on the blocks before n alone.
        made._states = self._states[: unchanged + 1]
        made.digest = made._hashed()
        return made

    def _hashed(self) -> str:
        """Complete the states from the last one that is known; the digest."""
        if not self._states:
            self._states.append(hashlib.sha256())
        del self._states[len(self._blocks) + 1 :]
        for place in range(len(self._states) - 1, len(self._blocks)):
            state = self._states[place].copy()
            if place:
                state.update(_SEPARATOR)
            state.update(self._blocks[place].joined)
            self._states.append(state)
        return "sha256:" + self._states[len(self._blocks)].hexdigest()


def read_state(
    items: Iterable[Item], epoch: Item | None = None, *, hold: int | None = None
) -> tuple[str, StateHash | None]:
    """The state hash of facts that come by id, and what the next one can be made from.

    Spec: CRP-SPEC-009 §6.1

    Args:
        items: id, content hash and status of each ACTIVE or STALE fact, by id, each id once.
        epoch: the item that is no fact's; None for none.
        hold: most items that are held, about 120 bytes each; None for any number.

    Returns:
        `sha256:` and 64 hexadecimal digits, and the value that holds the items; None for it when
        there are more than `hold`.

    >>> read_state([("a", "sha256:1", "ACTIVE")])[0] == state_hash([("a", "sha256:1", "ACTIVE")])
    True
    """
    made = object.__new__(StateHash)
    made.epoch = epoch
    made._blocks = []
    made._states = [hashlib.sha256()]
    held: StateHash | None = made
    whole: _Sha256 = hashlib.sha256()
    count = 0
    for block in _cuts(_in_order(items, epoch)):
        if count:
            whole.update(_SEPARATOR)
        whole.update(block.joined)
        count += len(block)
        if hold is not None and count > hold:
            held = None
            made._blocks.clear()
            made._states.clear()
        else:
            made._blocks.append(block)
            made._states.append(whole.copy())
    made.digest = f"sha256:{whole.hexdigest()}"
    return made.digest, held


def _in_order(items: Iterable[Item], epoch: Item | None) -> Iterator[_Entry]:
    """Items that come by id, in the order of their texts."""
    group: list[_Entry] = []
    root = ""
    for item, is_epoch in _beside(items, epoch):
        id_ = item[0]
        if group and not id_.startswith(root):
            group.sort()
            yield from group
            group = []
        if not group:
            root = id_
        group.append((_joined(item), 0) if is_epoch else _entry(item))
    group.sort()
    yield from group


def _beside(items: Iterable[Item], epoch: Item | None) -> Iterator[tuple[Item, bool]]:
    """The items with that of the epoch in its place among the ids; true for that one."""
    for item in items:
        if epoch is not None and item[0] >= epoch[0]:
            yield epoch, True
            epoch = None
        yield item, False
    if epoch is not None:
        yield epoch, True


def _place(entries: list[_Entry], prefix: bytes, id_bytes: int) -> int | None:
    """Where an id's item stands, among the few that begin with the id and a colon."""
    for at in range(bisect_left(entries, (prefix, 0)), len(entries)):
        text, own = entries[at]
        if not text.startswith(prefix):
            return None
        if own == id_bytes:
            return at
    return None


def _joined(item: Item) -> bytes:
    return ":".join(item).encode()


def _entry(item: Item) -> _Entry:
    return _joined(item), len(item[0].encode())


def _cut(entries: list[_Entry]) -> list[_Block]:
    """Blocks of sorted items, as few as may be when there are not many more than one holds."""
    if len(entries) <= 2 * BLOCK_ITEMS:
        return [_Block(entries)] if entries else []
    return list(_cuts(iter(entries)))


def _cuts(entries: Iterator[_Entry]) -> Iterator[_Block]:
    while part := list(islice(entries, BLOCK_ITEMS)):
        yield _Block(part)


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
