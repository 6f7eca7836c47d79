"""Trees by the letter of RFC 9162, against its own recursive words and known vectors."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.receipt.merkle import (
    EMPTY,
    Tree,
    consistency,
    consistent,
    grown,
    included,
    inclusion,
    leaf_hash,
    node_hash,
    position,
    root_of,
)

# The leaves and roots that the reference implementations of RFC 6962 and RFC 9162 are tested with.
ENTRIES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
# Place and size from 1, as the reference counts them.
PATHS = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (3, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
    (2, 5): [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
PROOFS = {
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
MOST = 70
LEAVES = [leaf_hash(b"%d" % number) for number in range(MOST)]
TREE = Tree(LEAVES)


def written_out(leaves: list[bytes]) -> bytes:
    """MTH as RFC 9162 §2.1.1 writes it."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return node_hash(written_out(leaves[:split]), written_out(leaves[split:]))


def path_written_out(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH as RFC 9162 §2.1.3.1 writes it."""
    if len(leaves) == 1:
        return []
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    if index < split:
        return [*path_written_out(index, leaves[:split]), written_out(leaves[split:])]
    return [*path_written_out(index - split, leaves[split:]), written_out(leaves[:split])]


def proof_written_out(first: int, leaves: list[bytes], *, whole: bool = True) -> list[bytes]:
    """SUBPROOF as RFC 9162 §2.1.4.1 writes it."""
    if first == len(leaves):
        return [] if whole else [written_out(leaves)]
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    if first <= split:
        return [
            *proof_written_out(first, leaves[:split], whole=whole),
            written_out(leaves[split:]),
        ]
    rest = proof_written_out(first - split, leaves[split:], whole=False)
    return [*rest, written_out(leaves[:split])]


def test_roots_of_the_reference() -> None:
    tree = Tree(map(leaf_hash, ENTRIES))
    assert [root_of(size, tree.node).hex() for size in range(1, 9)] == ROOTS
    assert tree.root.hex() == ROOTS[-1]
    assert (
        Tree().root
        == EMPTY
        == bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    )


@pytest.mark.parametrize(("place", "size"), sorted(PATHS))
def test_inclusion_proofs_of_the_reference(place: int, size: int) -> None:
    tree = Tree(map(leaf_hash, ENTRIES))
    path = inclusion(place - 1, size, tree.node)
    assert [one.hex() for one in path] == PATHS[place, size]
    root = bytes.fromhex(ROOTS[size - 1])
    assert included(leaf_hash(ENTRIES[place - 1]), place - 1, size, path, root)


@pytest.mark.parametrize(("first", "second"), sorted(PROOFS))
def test_consistency_proofs_of_the_reference(first: int, second: int) -> None:
    tree = Tree(map(leaf_hash, ENTRIES))
    path = consistency(first, second, tree.node)
    assert [one.hex() for one in path] == PROOFS[first, second]
    roots = [bytes.fromhex(ROOTS[size - 1]) for size in (first, second)]
    assert consistent(first, second, path, *roots)


def test_every_root_and_proof_is_that_of_the_words_of_the_rfc() -> None:
    for size in range(MOST + 1):
        root = root_of(size, TREE.node)
        assert root == written_out(LEAVES[:size])
        for index in range(size):
            path = inclusion(index, size, TREE.node)
            assert path == path_written_out(index, LEAVES[:size])
            assert included(LEAVES[index], index, size, path, root)
        for first in range(1, size + 1):
            path = consistency(first, size, TREE.node)
            assert path == proof_written_out(first, LEAVES[:size])
            assert consistent(first, size, path, root_of(first, TREE.node), root)


def test_a_log_that_grows_leaf_by_leaf_has_the_nodes_of_the_whole_tree() -> None:
    log: list[bytes] = []

    def node(level: int, place: int) -> bytes:
        return log[position(level, place)]

    for size, leaf in enumerate(LEAVES):
        for level, place, root in grown(size, leaf, node):
            # Each subtree stands where it is looked for, and nothing before it is touched.
            assert position(level, place) == len(log)
            log.append(root)
            assert root == TREE.node(level, place)
        assert root_of(size + 1, node) == root_of(size + 1, TREE.node)


def test_a_proof_asks_for_few_nodes() -> None:
    size, asked = 1_000_003, []

    def node(level: int, place: int) -> bytes:
        asked.append((level, place))
        return bytes(32)

    inclusion(654_321, size, node)
    consistency(123_457, size, node)
    root_of(size, node)
    assert len(asked) <= 5 * size.bit_length()


@given(
    index=st.integers(0, MOST - 1),
    size=st.integers(1, MOST),
    other=st.integers(0, MOST - 1),
    flip=st.integers(0, 255),
    at=st.integers(0, 6),
)
def test_no_other_proof_holds(index: int, size: int, other: int, flip: int, at: int) -> None:
    index, other = index % size, other % size
    path = inclusion(index, size, TREE.node)
    root = root_of(size, TREE.node)
    if other != index:
        assert not included(LEAVES[other], index, size, path, root)
        assert not included(LEAVES[index], other, size, path, root)
    assert not included(LEAVES[index], index, size, [*path, bytes(32)], root)
    assert not included(LEAVES[index], size, size, path, root)
    assert not included(LEAVES[index], -1, size, path, root)
    if path:
        assert not included(LEAVES[index], index, size, path[:-1], root)
        bad = list(path)
        bad[at % len(path)] = _flipped(bad[at % len(path)], flip)
        assert not included(LEAVES[index], index, size, bad, root)


@given(
    first=st.integers(1, MOST),
    second=st.integers(1, MOST),
    flip=st.integers(0, 255),
    at=st.integers(0, 7),
)
def test_no_other_history_holds(first: int, second: int, flip: int, at: int) -> None:
    first, second = sorted((first, second))
    old, new = root_of(first, TREE.node), root_of(second, TREE.node)
    path = consistency(first, second, TREE.node)
    assert consistent(first, second, path, old, new)
    assert not consistent(first, second, path, _flipped(old, flip), new)
    assert not consistent(first, second, path, old, _flipped(new, flip))
    assert not consistent(first, second, [*path, bytes(32)], old, new)
    assert not consistent(second + 1, second, path, old, new)
    if path:
        assert not consistent(first, second, [], old, new)
        bad = list(path)
        bad[at % len(path)] = _flipped(bad[at % len(path)], flip)
        assert not consistent(first, second, bad, old, new)


def test_the_empty_log_is_the_beginning_of_every_log() -> None:
    assert consistent(0, 5, [], EMPTY, root_of(5, TREE.node))
    assert consistent(0, 0, [], EMPTY, EMPTY)
    assert not consistent(0, 0, [], EMPTY, LEAVES[0])
    assert not consistent(0, 5, [LEAVES[0]], EMPTY, root_of(5, TREE.node))
    assert not consistent(0, 5, [], LEAVES[0], root_of(5, TREE.node))


@pytest.mark.parametrize(("index", "size"), [(0, 0), (3, 3), (-1, 3)])
def test_there_is_no_proof_of_what_is_not_there(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="is not in a tree of"):
        inclusion(index, size, TREE.node)


@pytest.mark.parametrize(("first", "second"), [(0, 3), (4, 3), (-1, 3)])
def test_there_is_no_proof_between_sizes_that_were_never_there(first: int, second: int) -> None:
    with pytest.raises(ValueError, match="cannot be the beginning of"):
        consistency(first, second, TREE.node)


def _flipped(value: bytes, bit: int) -> bytes:
    changed = bytearray(value)
    changed[bit // 8] ^= 1 << (bit % 8)
    return bytes(changed)
