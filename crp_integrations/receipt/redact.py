"""Leaving texts out of a copy: the signature stays, and the tree still verifies."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from crp_integrations.errors import RequestError
from crp_integrations.receipt.leaves import Entry, quoted
from crp_integrations.receipt.records import LeftOut, Receipt


def redact(
    receipt: Receipt,
    *,
    facts: Collection[str] = (),
    sources: Collection[str] = (),
    names: Collection[str] = (),
    quoting: bool = True,
) -> Receipt:
    """A copy without some texts.

    What may quote a fact goes with it: the answer, and every text that is put together from it.
    What was erased stays erased.

    Args:
        facts: ids of facts.
        sources: ids of sources, whose facts are meant, as the content names them.
        names: names of other leaves, such as `answer`.
        quoting: False keeps the plain texts that may quote one of the facts, for a caller who has
            seen that they do not; what is put together from one goes all the same.

    Raises:
        RequestError: the receipt has no such fact, source or leaf.
    """
    wanted = {*facts}
    if sources:
        wanted |= _of_sources(receipt, sources)
    known = {leaf.fact_id for leaf in receipt.leaves if leaf.fact_id}
    strange = sorted(wanted - known) + sorted({*names} - receipt.numbers.keys())
    if strange:
        raise RequestError(f"the receipt has nothing that is named {strange[0]!r:.80}")
    chosen = {
        number
        for number, leaf in enumerate(receipt.leaves)
        if leaf.name in names or (leaf.fact_id and leaf.fact_id in wanted)
    }
    gone = (
        with_quoting(receipt.leaves, chosen) if quoting else with_composed(receipt.leaves, chosen)
    )
    return receipt.without(
        {n: LeftOut.REDACTED for n in gone if not isinstance(receipt.texts[n], LeftOut)}
    )


def with_quoting(leaves: tuple[Entry, ...], chosen: Iterable[int]) -> set[int]:
    """Numbers of leaves, and of those that may quote them or are put together from them."""
    gone = {*chosen}
    for number, leaf in enumerate(leaves):
        # What may quote what may quote: a text comes behind those that it was made of.
        if leaf.of and not gone.isdisjoint(leaf.of):
            gone.add(number)
    return with_composed(leaves, gone)


def with_composed(leaves: tuple[Entry, ...], chosen: Iterable[int]) -> set[int]:
    """Numbers of leaves, and of those that are put together from them."""
    gone = {*chosen}
    return gone | {n for n, leaf in enumerate(leaves) if not gone.isdisjoint(quoted(leaf.parts))}


def _of_sources(receipt: Receipt, sources: Collection[str]) -> set[str]:
    listed = receipt.content.get("candidates")
    found: set[str] = set()
    missing = {*sources}
    for one in listed if isinstance(listed, list) else ():
        if (
            isinstance(one, dict)
            and one.get("source") in sources
            and isinstance(one.get("id"), str)
        ):
            found.add(one["id"])
            missing.discard(one["source"])
    if missing:
        raise RequestError(f"the receipt has no fact of source {min(missing)!r:.80}")
    return found
