"""Leaves texts out of a receipt: on request in a copy, or because their facts were erased.

The signature and the tree still verify. The reason that replaces a text is not signed. That a text
existed, of which fact, and its salted hash are signed; so a copy shows where something is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from crp_integrations.envelope.candidates import is_summary
from crp_integrations.errors import RequestError
from crp_integrations.receipt.leaves import COMMUNITIES, LeafEntry, quoted
from crp_integrations.receipt.reconstruction import content_of
from crp_integrations.receipt.records import OmissionReason, Receipt, require_receipt

# Leaves derived from facts: labels in their words, and hashes without salt.
_DERIVED_FROM_FACTS: Final = (COMMUNITIES, "seal")
# For each named leaf, prefixes of the leaves that repeat its text.
_REPEATED_BY: Final = {
    "request": ("need/", "cover/", "prompt", "judge/"),
    "answer": ("examined", "original", "edit/", "call/", "judge/"),
    "examined": ("judge/",),
    "original": ("answer", "examined", "edit/", "call/", "judge/"),
    "system-prompt": ("judge/",),
    "instructions": ("judge/",),
    "history/": ("judge/",),
    "conversation/": ("judge/",),
}
_NUMBERED: Final = ("history/", "conversation/")
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
    unshown: bool = False,
) -> Receipt:
    """Make a copy without some texts and without all texts that may contain them.

    A fact takes with it every text that may quote it: the answer, texts that repeat earlier
    windows, and texts composed from it. The question takes its sub-questions, and a prompt that the
    caller wrote around it; the answer takes the examined text and later calls. A composed text
    takes its parts. Any text takes the texts, except facts, that contain it literally. Erased texts
    stay marked as erased.

    Args:
        sources: ids of sources, as in the content, whose facts are left out.
        quoting: False keeps plain texts that may quote one of the facts, for a caller that has
            checked that they do not; texts composed or derived from a fact are still left out.
        unshown: True leaves out also the candidates that no model and no examination was shown;
            no text that was shown goes with them, nor does the seal.

    Raises:
        RequestError: the receipt has no such fact, source or leaf, it is not a Receipt, or a string
            was passed instead of a list.
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
        raise RequestError(f"the receipt has nothing named {strange[0]!r:.80}")
    chosen = {
        number
        for number, leaf in enumerate(receipt.leaves)
        if leaf.name in names or (leaf.fact_id and leaf.fact_id in wanted)
    }
    for name in names:
        chosen |= quoted(receipt.leaves[receipt.number(name)].parts)
    chosen |= _repetitions(receipt, names)
    # With quoting=False the caller has checked that the texts do not quote the facts.
    chosen |= _word_for_word(receipt, chosen, facts=quoting)
    if quoting and wanted:
        chosen |= repeating(receipt)
    if quoting:
        gone = with_quoting(receipt.leaves, chosen)
    else:
        made = {
            number
            for number, leaf in enumerate(receipt.leaves)
            if (leaf.name in _DERIVED_FROM_FACTS or leaf.name.startswith(_QUOTING))
            and not chosen.isdisjoint(leaf.of)
        }
        gone = with_composed(receipt.leaves, chosen | made)
    if unshown:
        gone |= _unshown(receipt)
    return receipt.without(
        {
            n: OmissionReason.REDACTED
            for n in gone
            if not isinstance(receipt.texts[n], OmissionReason)
        }
    )


def _unshown(receipt: Receipt) -> set[int]:
    """Numbers of the leaves of candidates that were not shown, and of the communities' labels."""
    content = content_of(receipt)
    if content.envelope is None:
        return set()
    shown = {number for leaf in receipt.leaves for number in quoted(leaf.parts)}
    shown |= {number for leaf in receipt.leaves if leaf.name == "context" for number in leaf.of}
    for passage in (content.examined and content.examined.passages) or ():
        shown |= quoted(passage.pieces)
    return {candidate.leaf for candidate in content.candidates} - shown | {
        number for number, leaf in enumerate(receipt.leaves) if leaf.name == COMMUNITIES
    }


def repeating(receipt: Receipt) -> set[int]:
    """Numbers of leaves that may repeat earlier windows: those marked `follows`, and summaries."""
    summary_ids = summaries(receipt)
    return {
        number
        for number, leaf in enumerate(receipt.leaves)
        if leaf.follows or (leaf.fact_id and leaf.fact_id in summary_ids)
    }


def summaries(receipt: Receipt) -> set[str]:
    """Ids of facts that are summaries of earlier windows; those are not in the fabric."""
    return _ids(receipt, is_summary)


def _repetitions(receipt: Receipt, names: Collection[str]) -> set[int]:
    """Numbers of leaves that repeat the text of named ones."""
    numbered = {start for start in _NUMBERED if any(name.startswith(start) for name in names)}
    prefixes = tuple(start for name in {*names, *numbered} for start in _REPEATED_BY.get(name, ()))
    numbers = {
        number
        for number, leaf in enumerate(receipt.leaves)
        if prefixes and leaf.name.startswith(prefixes) and not leaf.name.startswith(_FIRST_CALL)
    }
    request: Any = receipt.content.get("request")
    if "request" in names and not (isinstance(request, dict) and request.get("shaped")):
        # The caller wrote the prompt, so it may contain the question anywhere and in any form.
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
        and not isinstance(leaf_text, OmissionReason)
        and leaf_text.text is not None
        and any(text in leaf_text.text for text in chosen_texts)
    }


def with_quoting(leaves: tuple[LeafEntry, ...], chosen: Iterable[int]) -> set[int]:
    """Numbers of leaves, with those that may quote them or are composed from them."""
    gone = {*chosen}
    for number, leaf in enumerate(leaves):
        # Quoting is transitive; one pass is enough, as a leaf comes after those it may quote.
        if leaf.of and not gone.isdisjoint(leaf.of):
            gone.add(number)
    return with_composed(leaves, gone)


def with_composed(leaves: tuple[LeafEntry, ...], chosen: Iterable[int]) -> set[int]:
    """Numbers of leaves, with those that are composed from them."""
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
    """Ids of candidates whose source is wanted; the content is not validated yet."""
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
    """Erase facts and texts that may quote them; with `answers`, also those of `repeating`."""
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
    return receipt.without(dict.fromkeys(gone, OmissionReason.ERASED)) if gone else receipt


def silent(receipt: Receipt) -> bool:
    """Whether a receipt has no texts left."""
    return all(isinstance(text, OmissionReason) for text in receipt.texts)
