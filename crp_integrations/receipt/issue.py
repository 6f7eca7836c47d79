"""Signing: a draft becomes a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.dsse import IN_TOTO, SigningKey
from crp_integrations.receipt.leaves import Entry, Leaf, check_parts, composed, leaf_hashes, salts
from crp_integrations.receipt.merkle import Tree
from crp_integrations.receipt.records import Draft, Receipt, Shown
from crp_integrations.receipt.statement import SUBJECTS, Chain, Statement

ALGORITHMS: Final = ("receipt@1", "leaf@1")


def issue(draft: Draft, chain: Chain, key: SigningKey, salt_key: bytes) -> Receipt:
    """Sign what a window leaves.

    Args:
        salt_key: secret, 32 bytes; equal drafts at equal places give equal receipts.

    Raises:
        ValueError: the draft holds what cannot be signed, or lacks one of the three subjects.
    """
    leaves = draft.leaves
    try:
        check_parts(leaves, "leaves")
    except ReceiptBroken as error:
        raise ValueError(str(error)) from None
    hidden = salts(salt_key, chain.hmac, len(leaves))
    said = [_text(leaf, leaves) if leaf.parts else leaf.text for leaf in leaves]
    digests = leaf_hashes(zip(hidden, said, strict=True))
    names, _, ids, _, ofs, follows, parts = zip(*leaves, strict=True) if leaves else [()] * 7
    # As tuples, without a call of their class for each.
    columns = zip(names, digests, ids, ofs, follows, parts, strict=True)
    entries = tuple(map(tuple.__new__, repeat(Entry), columns))
    hashes = dict(zip(names, digests, strict=True))
    missing = [name for name in SUBJECTS if name not in hashes]
    if missing:
        raise ValueError(f"no leaf is named {missing[0]!r}")
    statement = Statement(
        {name: hashes[name] for name in SUBJECTS},
        chain,
        entries,
        Tree(digests).root,
        draft.content,
    )
    signed = key.sign(IN_TOTO, statement.to_payload())
    texts = [None if own else text for own, text in zip(parts, said, strict=True)]
    shown = tuple(map(tuple.__new__, repeat(Shown), zip(hidden, texts, strict=True)))
    return Receipt(signed, key.public, statement, shown)


def _text(leaf: Leaf, leaves: Sequence[Leaf]) -> str:
    """What a composed leaf says.

    Raises:
        ValueError: it is put together from more of a leaf than there is.
    """
    if leaf.text:
        return leaf.text
    found = composed(leaf.parts, lambda number: leaves[number].text)
    if found is None:
        raise ValueError(f"leaf {leaf.name!r:.60} has a stretch that its leaf is too short for")
    return found
