"""Leaving texts out of a receipt: by wish in a copy, or because their facts are gone.

The signature stays, and the tree still verifies. The word in a text's place is not signed. That
there was a text, of which fact, and its salted hash are; so a copy shows where something was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from crp_integrations.envelope.continuation import is_summary
from crp_integrations.errors import RequestError
from crp_integrations.receipt.leaves import LeafEntry, quoted
from crp_integrations.receipt.records import LeftOut, Receipt, require_receipt

# What the package makes of facts by itself: labels in their words, hashes without salt.
_MADE_OF_FACTS: Final = ("communities", "seal")
# Leaves that repeat a question or an answer, by how their names begin.
_AGAIN: Final = {
    "request": ("need/", "cover/", "prompt", "judge/"),
    "answer": ("examined", "call/", "judge/"),
    "examined": ("judge/",),
    "system-prompt": ("judge/",),
    "instructions": ("judge/",),
    "history/": ("judge/",),
    "conversation/": ("judge/",),
}
_LISTED: Final = ("history/", "conversation/")
# A judge's task is to quote, so its reply is always taken to repeat the text.
_QUOTING: Final = "judge/"
_CALLS: Final = "call/"
_FIRST_CALL: Final = "call/1/"


def redact(
    receipt: Receipt,
    *,
    facts: Collection[str] = (),
    sources: Collection[str] = (),
    names: Collection[str] = (),
    quoting: bool = True,
) -> Receipt:
    """A copy without some texts.

    What may quote a fact goes with it: the answer, what repeats earlier windows, and every text
    that is put together from it. With the question goes what it was taken apart into, and a prompt
    that somebody else wrote around it; with the answer what was examined and sent of it. With a
    composed text goes what it is put together from, and with any text whatever has it word for
    word, apart from facts. What was erased stays erased.

    Args:
        sources: ids of sources, whose facts are meant, as the content names them.
        quoting: False keeps the plain texts that may quote one of the facts, for a caller who has
            seen that they do not; what is put together or made from one goes all the same.

    Raises:
        RequestError: the receipt has no such fact, source or leaf, or it is none; a text stands in
            the place of a list.
    """
    require_receipt(receipt)
    for argument, words in (("facts", facts), ("sources", sources), ("names", names)):
        if isinstance(words, str):
            raise RequestError(
                f"{argument} is the text {words!r:.60}, wanted a list: {argument}=[{words!r:.60}]"
            )
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
    for name in names:
        chosen |= quoted(receipt.leaves[receipt.number(name)].parts)
    chosen |= _again(receipt, names)
    # Whoever keeps texts that may quote a fact has checked that they do not.
    chosen |= _word_for_word(receipt, chosen, facts=quoting)
    if quoting and wanted:
        chosen |= repeating(receipt)
    if quoting:
        gone = with_quoting(receipt.leaves, chosen)
    else:
        made = {
            number
            for number, leaf in enumerate(receipt.leaves)
            if (leaf.name in _MADE_OF_FACTS or leaf.name.startswith(_QUOTING))
            and not chosen.isdisjoint(leaf.of)
        }
        gone = with_composed(receipt.leaves, chosen | made)
    return receipt.without(
        {n: LeftOut.REDACTED for n in gone if not isinstance(receipt.texts[n], LeftOut)}
    )


def repeating(receipt: Receipt) -> set[int]:
    """Numbers of leaves that may repeat earlier windows: those that say so, and summaries."""
    summary_ids = summaries(receipt)
    return {
        number
        for number, leaf in enumerate(receipt.leaves)
        if leaf.follows or (leaf.fact_id and leaf.fact_id in summary_ids)
    }


def summaries(receipt: Receipt) -> set[str]:
    """Ids of facts that are summaries of earlier windows; no fabric has those."""
    return _ids(receipt, is_summary)


def _again(receipt: Receipt, names: Collection[str]) -> set[int]:
    """Numbers of leaves that repeat the text of named ones."""
    listed = {begin for begin in _LISTED if any(name.startswith(begin) for name in names)}
    begins = tuple(begin for name in {*names, *listed} for begin in _AGAIN.get(name, ()))
    numbers = {
        number
        for number, leaf in enumerate(receipt.leaves)
        if begins and leaf.name.startswith(begins) and not leaf.name.startswith(_FIRST_CALL)
    }
    request: Any = receipt.content.get("request")
    if "request" in names and not (isinstance(request, dict) and request.get("shaped")):
        # The caller wrote the prompt, so the question may be anywhere in it and in any form.
        numbers |= {n for n, leaf in enumerate(receipt.leaves) if leaf.name.startswith(_CALLS)}
    return numbers


def _word_for_word(receipt: Receipt, chosen: Collection[int], *, facts: bool) -> set[int]:
    """Numbers of plain texts, except facts, that contain the whole of a chosen text."""
    leaves = receipt.leaves
    chosen_texts = {
        (receipt.text(number) or "").strip()
        for number in chosen
        if not leaves[number].name.startswith(_CALLS) and (facts or not leaves[number].fact_id)
    }
    chosen_texts.discard("")
    return {
        number
        for number, (leaf, leaf_text) in enumerate(zip(leaves, receipt.texts, strict=True))
        if not leaf.fact_id
        and not isinstance(leaf_text, LeftOut)
        and leaf_text.text is not None
        and any(text in leaf_text.text for text in chosen_texts)
    }


def with_quoting(leaves: tuple[LeafEntry, ...], chosen: Iterable[int]) -> set[int]:
    """Numbers of leaves, and of those that may quote them or are put together from them."""
    gone = {*chosen}
    for number, leaf in enumerate(leaves):
        # Quoting is transitive, and one pass is enough: a text comes after those it is made of.
        if leaf.of and not gone.isdisjoint(leaf.of):
            gone.add(number)
    return with_composed(leaves, gone)


def with_composed(leaves: tuple[LeafEntry, ...], chosen: Iterable[int]) -> set[int]:
    """Numbers of leaves, and of those that are put together from them."""
    gone = {*chosen}
    return gone | {n for n, leaf in enumerate(leaves) if not gone.isdisjoint(quoted(leaf.parts))}


def _of_sources(receipt: Receipt, sources: Collection[str]) -> set[str]:
    fact_ids: set[str] = set()
    for source in sorted(sources):
        facts = _ids(receipt, source.__eq__)
        if not facts:
            raise RequestError(f"the receipt has no fact of source {source!r:.80}")
        fact_ids |= facts
    return fact_ids


def _ids(receipt: Receipt, wanted: Callable[[str], bool]) -> set[str]:
    """Ids of candidates by their source; the content's shape is not checked yet."""
    listed: Any = receipt.content.get("candidates")
    return {
        candidate["id"]
        for candidate in (listed if isinstance(listed, list) else ())
        if isinstance(candidate, dict)
        and isinstance(candidate.get("id"), str)
        and isinstance(candidate.get("source"), str)
        and wanted(candidate["source"])
    }


def erased(receipt: Receipt, facts: Collection[str], *, answers: bool = False) -> Receipt:
    """A receipt without the texts of some facts and what may quote them."""
    if not facts and not answers:
        return receipt
    leaves = receipt.leaves
    chosen = {n for n, leaf in enumerate(leaves) if leaf.fact_id and leaf.fact_id in facts}
    if answers:
        before = repeating(receipt)
        chosen |= {n for n in before if leaves[n].fact_id}
        gone = with_composed(leaves, with_quoting(leaves, chosen) | before)
    else:
        gone = with_quoting(leaves, chosen)
    return receipt.without(dict.fromkeys(gone, LeftOut.ERASED)) if gone else receipt


def silent(receipt: Receipt) -> bool:
    """Whether no text is left in a receipt."""
    return all(isinstance(text, LeftOut) for text in receipt.texts)
