"""Signing: a draft becomes a receipt."""

from __future__ import annotations

from typing import Final

from crp_integrations.errors import ReceiptBroken
from crp_integrations.receipt.dsse import IN_TOTO, SigningKey
from crp_integrations.receipt.leaves import Entry, check_parts, composed, leaf_hash, salts
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
    entries, shown = [], []
    for leaf, salt in zip(leaves, salts(salt_key, chain.hmac, len(leaves)), strict=True):
        name, said, fact_id, _, of, follows, parts = leaf
        if parts and not said:
            found = composed(parts, lambda number: leaves[number].text)
            if found is None:
                raise ValueError(f"leaf {name!r:.60} has a stretch that its leaf is too short for")
            said = found
        entries.append(Entry(name, leaf_hash(salt, said), fact_id, of, follows, parts))
        shown.append(Shown(salt, None if parts else said))
    hashes = {entry.name: entry.hash for entry in entries}
    missing = [name for name in SUBJECTS if name not in hashes]
    if missing:
        raise ValueError(f"no leaf is named {missing[0]!r}")
    statement = Statement(
        {name: hashes[name] for name in SUBJECTS},
        chain,
        tuple(entries),
        Tree(entry.hash for entry in entries).root,
        draft.content,
    )
    signed = key.sign(IN_TOTO, statement.to_payload())
    return Receipt(signed, key.public, statement, tuple(shown))
