"""The state hash: one value that changes whenever what can be retrieved changes.

`state_hash` is the formula as it is printed. `StateHash` gives the same value after a change
without hashing everything again: the sorted items lie in blocks, the state of SHA-256 before each
block is kept, and a change hashes on from the first block that it touches.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Protocol

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
        self._ends = array("Q", accumulate(len(text) + 1 for text in texts))
        self._id_bytes = array("Q", (id_bytes for _, id_bytes in entries))

    def __len__(self) -> int:
        return len(self._ends)

    def entries(self) -> list[_Entry]:
        starts = [0, *self._ends[:-1]]
        return [
            (self.joined[start : end - 1], id_bytes)
            for start, end, id_bytes in zip(starts, self._ends, self._id_bytes, strict=True)
        ]


class StateHash:
    """The state hash of one state, from which that of the next one is made.

    Nothing of it changes after it is made, and the next one shares the blocks that are equal: a
    transaction that is undone leaves the earlier value as it was.

    Spec: CRP-SPEC-009 §6.1

    Attributes:
        digest: `sha256:` and 64 hexadecimal digits, bit for bit that of the formula.
        epoch: the item that is no fact's, as `epoch.py` makes it; None for none.
    """

    __slots__ = ("_blocks", "_states", "digest", "epoch")

    def __init__(self, items: Iterable[Item] = (), epoch: Item | None = None) -> None:
        entries = [_entry(item) for item in items]
        if epoch is not None:
            entries.append((_joined(epoch), 0))
        # Facts come sorted by id, which is nearly the order of their items.
        entries.sort()
        self.epoch = epoch
        self._blocks: list[_Block] = _cut(entries)
        self._states: list[_Sha256] = []
        self.digest = self._hashed()

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks) - (self.epoch is not None)

    def changed(self, removed: Iterable[str], items: Iterable[Item]) -> StateHash:
        """The hash after facts came, went or became others.

        Args:
            removed: ids of facts that are no longer there; unknown ones do nothing.
            items: facts as they are now, new ones and changed ones.
        """
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

    # --- within ------------------------------------------------------------------------

    def _replaced(
        self, gone: list[tuple[bytes, int]], new: list[_Entry], epoch: Item | None
    ) -> StateHash:
        """Take out what begins like `gone` and put `new` in, rewriting the blocks they are in."""
        firsts = [block.first for block in self._blocks]
        touched: dict[int, list[_Entry]] = {}
        changed: set[int] = set()

        def opened(place: int) -> list[_Entry]:
            if place not in touched:
                touched[place] = self._blocks[place].entries()
            return touched[place]

        for prefix, id_bytes in gone:
            found = self._find(firsts, opened, prefix, id_bytes)
            if found is not None:
                place, entry = found
                touched[place] = [other for other in opened(place) if other != entry]
                changed.add(place)
        for entry in new:
            place = max(0, bisect_right(firsts, entry[0]) - 1)
            (opened(place) if self._blocks else touched.setdefault(0, [])).append(entry)
            changed.add(place)
        if not changed and epoch == self.epoch:
            return self

        made = object.__new__(StateHash)
        made.epoch = epoch
        made._blocks = []
        kept = min(changed, default=len(self._blocks))
        for place in range(max(len(self._blocks), 1)):
            if place in changed:
                made._blocks += _cut(sorted(touched[place]))
            elif place < len(self._blocks):
                made._blocks.append(self._blocks[place])
        # The state before block n depends on the blocks before n alone.
        made._states = self._states[: kept + 1]
        made.digest = made._hashed()
        return made

    def _find(
        self,
        firsts: list[bytes],
        opened: _Open,
        prefix: bytes,
        id_bytes: int,
    ) -> tuple[int, _Entry] | None:
        """Where the item of an id stands: among the few that begin with the id and a colon."""
        place = max(0, bisect_right(firsts, prefix) - 1)
        while place < len(self._blocks):
            entries = opened(place)
            for entry in entries[bisect_left(entries, (prefix, 0)) :]:
                if not entry[0].startswith(prefix):
                    return None
                if entry[1] == id_bytes:
                    return place, entry
            place += 1
        return None

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


class _Open(Protocol):
    def __call__(self, place: int, /) -> list[_Entry]: ...


def _joined(item: Item) -> bytes:
    return ":".join(item).encode()


def _entry(item: Item) -> _Entry:
    return _joined(item), len(item[0].encode())


def _cut(entries: list[_Entry]) -> list[_Block]:
    """Blocks of sorted items, as few as may be when there are not many more than one holds."""
    return list(_cuts(entries))


def _cuts(entries: list[_Entry]) -> Iterator[_Block]:
    if len(entries) <= 2 * BLOCK_ITEMS:
        if entries:
            yield _Block(entries)
        return
    for start in range(0, len(entries), BLOCK_ITEMS):
        yield _Block(entries[start : start + BLOCK_ITEMS])
