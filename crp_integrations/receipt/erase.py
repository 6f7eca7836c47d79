"""Taking texts out of a stored receipt because their facts, or their session, are gone.

The word in a text's place is not signed. That there was a text, of which fact, and its salted hash
are; so the receipt still verifies, and shows where something was.
"""

from __future__ import annotations

from collections.abc import Collection

from crp_integrations.receipt.records import LeftOut, Receipt
from crp_integrations.receipt.redact import repeating, with_composed, with_quoting


def erased(receipt: Receipt, facts: Collection[str], *, said: bool = False) -> Receipt:
    """A receipt without the texts of some facts and what may quote them.

    Args:
        facts: ids; those that the receipt does not have do nothing.
        said: also without what may repeat earlier windows, since one of those was emptied:
            answers before, and summaries of them with what quotes those.
    """
    if not facts and not said:
        return receipt
    leaves = receipt.leaves
    chosen = {n for n, leaf in enumerate(leaves) if leaf.fact_id and leaf.fact_id in facts}
    if said:
        before = repeating(receipt)
        chosen |= {n for n in before if leaves[n].fact_id}
        gone = with_composed(leaves, with_quoting(leaves, chosen) | before)
    else:
        gone = with_quoting(leaves, chosen)
    return receipt.without(dict.fromkeys(gone, LeftOut.ERASED)) if gone else receipt


def emptied(receipt: Receipt) -> Receipt:
    """A receipt without any text, as for a session that is forgotten."""
    return receipt.without(dict.fromkeys(range(len(receipt.texts)), LeftOut.ERASED))


def silent(receipt: Receipt) -> bool:
    """Whether no text is left in a receipt."""
    return all(isinstance(one, LeftOut) for one in receipt.texts)
