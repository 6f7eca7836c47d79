"""Merkle trees of RFC 9162: roots, inclusion and consistency proofs, without recursion.

Spec: RFC 9162 §2.1

The functions look up roots of complete subtrees: level 0 has the leaves' hashes, place p of level l
the root over leaves p·2^l to (p + 1)·2^l - 1. With those stored (`ledger_nodes` of a store, `Tree`
in memory), roots and proofs of any size take logarithmic time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

# Gives the root of a complete subtree by level and place.
Nodes = Callable[[int, int], bytes]
EMPTY = sha256(b"").digest()


def leaf_hash(entry: bytes) -> bytes:
    """The hash of a leaf (RFC 9162 §2.1.1)."""
    hasher = sha256(b"\x00")
    # Avoids a copy of the entry, which may be a whole receipt.
    hasher.update(entry)
    return hasher.digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return sha256(b"\x01" + left + right).digest()


def grown(size: int, leaf: bytes, nodes: Nodes) -> Iterator[tuple[int, int, bytes]]:
    """Subtrees that appending one leaf to `size` leaves completes: level, place and root."""
    level, place, root = 0, size, leaf
    yield level, place, root
    while place & 1:
        root = node_hash(nodes(level, place - 1), root)
        level, place = level + 1, place >> 1
        yield level, place, root


def position(level: int, place: int) -> int:
    """Index of a complete subtree in the order in which subtrees are completed.

    Appending a leaf never changes a complete subtree, so a list of them is append-only too.

    >>> [position(0, 0), position(0, 1), position(1, 0), position(0, 2)]
    [0, 1, 2, 3]
    """
    last = ((place + 1) << level) - 1
    return 2 * last - last.bit_count() + level


def root_of(size: int, nodes: Nodes) -> bytes:
    """The root over the first `size` leaves of a tree (RFC 9162 §2.1.1)."""
    return _range(0, size, nodes) if size else EMPTY


def inclusion(index: int, size: int, nodes: Nodes) -> list[bytes]:
    """The inclusion proof of a leaf (RFC 9162 §2.1.3.1), from the leaf up."""
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size}")
    path: list[bytes] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(_range(middle, high, nodes))
            high = middle
        else:
            path.append(_range(low, middle, nodes))
            low = middle
    path.reverse()
    return path


def consistency(first: int, second: int, nodes: Nodes) -> list[bytes]:
    """The proof that the first `second` leaves begin with the first `first` (RFC 9162 §2.1.4.1)."""
    if not 1 <= first <= second:
        raise ValueError(f"a tree of {first} leaves cannot be the beginning of one of {second}")
    path: list[bytes] = []
    low, high, whole = 0, second, True
    while first != high:
        middle = low + _split(high - low)
        if first <= middle:
            path.append(_range(middle, high, nodes))
            high = middle
        else:
            path.append(_range(low, middle, nodes))
            low, whole = middle, False
    if not whole:
        path.append(_range(low, high, nodes))
    path.reverse()
    return path


def included(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether an inclusion proof holds (RFC 9162 §2.1.3.2)."""
    if not 0 <= index < size:
        return False
    place, last, made = index, size - 1, leaf
    for step in path:
        if last == 0:
            return False
        if place & 1 or place == last:
            made = node_hash(step, made)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            made = node_hash(made, step)
        place, last = place >> 1, last >> 1
    return last == 0 and made == root


def consistent(
    first: int, second: int, path: Sequence[bytes], first_root: bytes, second_root: bytes
) -> bool:
    """Whether a consistency proof holds (RFC 9162 §2.1.4.2).

    An empty tree is the beginning of every tree; the RFC does not cover that case.
    """
    if first == 0:
        return not path and first_root == EMPTY and (second > 0 or second_root == EMPTY)
    if not 0 < first <= second:
        return False
    if first == second:
        return not path and first_root == second_root
    steps = list(path)
    if not first & (first - 1):
        steps.insert(0, first_root)
    if not steps:
        return False
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old, new = node_hash(step, old), node_hash(step, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, step)
        place, last = place >> 1, last >> 1
    return last == 0 and old == first_root and new == second_root


class Tree:
    """A tree in memory."""

    __slots__ = ("_levels",)

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        """Build the tree from the hashes of its leaves."""
        self._levels: list[list[bytes]] = [list(leaves)]
        while len(below := self._levels[-1]) > 1:
            pairs = range(0, len(below) - 1, 2)
            # `node_hash` inlined for speed: a receipt's tree has as many nodes as leaves.
            self._levels.append([sha256(b"\x01" + below[n] + below[n + 1]).digest() for n in pairs])

    def __len__(self) -> int:
        return len(self._levels[0])

    def node(self, level: int, place: int) -> bytes:
        """The root of a complete subtree."""
        return self._levels[level][place]

    @property
    def root(self) -> bytes:
        """The root over all leaves."""
        return root_of(len(self), self.node)


def _split(count: int) -> int:
    """The largest power of two below a count of at least 2."""
    return 1 << ((count - 1).bit_length() - 1)


def _range(low: int, high: int, nodes: Nodes) -> bytes:
    """The root over leaves `low` to `high`; `low` must be a split point of RFC 9162."""
    tops: list[bytes] = []
    while low < high:
        level = (high - low).bit_length() - 1
        tops.append(nodes(level, low >> level))
        low += 1 << level
    made = tops.pop()
    while tops:
        made = node_hash(tops.pop(), made)
    return made
