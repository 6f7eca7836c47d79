"""Drawing what a replay came to, what would have been, and two receipts beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import unified_diff

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crp_integrations.cli.show import plain, terminal
from crp_integrations.receipt.comparison import Compared
from crp_integrations.receipt.records import Receipt
from crp_integrations.receipt.replay_records import DIFFERS, EQUAL, Replayed
from crp_integrations.receipt.supposition import ContextChange, Supposed, Two, VerdictChange
from crp_integrations.scores import SCALE

STYLE = {EQUAL: "green", DIFFERS: "bold red"}
# So many ids are listed.
SOME = 5
_LINES = {"+": "green", "-": "red", "@": "cyan"}


def replayed(found: Replayed) -> None:
    """Each part with what became of it, and what a replay cannot show."""
    table = Table(title="Replay", title_justify="left")
    for name in ("part", "state", "where", "remark"):
        table.add_column(name, overflow="fold")
    for part in found.parts:
        remark = part.why
        if part.state == DIFFERS and part.recorded != part.replayed:
            remark = f"recorded {part.recorded or 'nothing'}, replayed {part.replayed or 'nothing'}"
        table.add_row(
            part.name,
            Text(part.state, style=STYLE.get(part.state, "yellow")),
            Text(plain(part.place)),
            Text(plain(remark, whole=True)),
        )
    style = "yellow" if found.not_run else "green"
    verdict = Text(found.summary, style if found.same else "bold red")
    terminal().print(Group(table, _limits(found.limits)))
    # One line at any width, as the last line is what scripts read.
    terminal().print(verdict, soft_wrap=True)


def supposed(receipt: Receipt, found: Supposed) -> None:
    """What would change of the context and of the verdict."""
    parts: list[RenderableType] = []
    if found.context is not None:
        parts.append(_context(receipt, found.context))
    if found.verdict is not None:
        parts.append(_verdict(found.verdict))
    parts += [Text(f"note: {plain(note, whole=True)}") for note in found.notes]
    terminal().print(Group(*parts, _limits(found.limits)))


def compared(found: Compared) -> None:
    """Where two receipts differ, and their contexts line by line."""
    missing = found.not_compared
    left_out = [Text(f"not compared, not in both copies: {_some(missing)}")] if missing else []
    if found.same:
        what = "nothing that was compared" if missing else "nothing"
        said = Text(f"{what} differs but ids, times and places in the chain", "green")
        terminal().print(Group(*left_out, said))
        return
    table = Table(title="First differences", title_justify="left")
    for name in ("part", "where", "left", "right"):
        table.add_column(name, overflow="fold")
    for one in found.differences:
        table.add_row(
            Text(one.part), Text(plain(one.place)), Text(plain(one.left)), Text(plain(one.right))
        )
    sets = (
        ("facts only in the right context", found.facts_in),
        ("facts only in the left context", found.facts_out),
        ("candidates only in the right", found.candidates_in),
        ("candidates only in the left", found.candidates_out),
        ("candidates with other scores", found.rescored),
    )
    lines = [Text(f"{what}: {_some(ids)}") for what, ids in sets if ids]
    beside = _lines(found.left_context, found.right_context, ("left", "right"))
    terminal().print(Group(table, *lines, *left_out, *beside))


def _some(ids: Sequence[str]) -> str:
    """Ids, the first of them where they are many."""
    more = len(ids) - SOME
    return ", ".join(map(plain, ids[:SOME])) + (f" and {more} more" if more > 0 else "")


def _context(receipt: Receipt, change: ContextChange) -> Group:
    table = _beside("Context")
    table.add_row("tier", change.tier_before.value, change.tier_after.value)
    for name, two in (
        ("tokens", change.tokens),
        ("budget", change.budget),
        ("bytes", change.bytes),
    ):
        table.add_row(name, str(two.before), str(two.after))
    lines = ["the same bytes"] if change.same else []
    for word, ids in (
        ("in", change.facts_in),
        ("out", change.facts_out),
        ("moved", change.moved),
    ):
        lines += [f"{word}: {plain(fact_id)}  {_begins(receipt, fact_id)}" for fact_id in ids]
    if change.place:
        lines.append(f"first difference: {change.place}")
    beside = _lines(change.before, change.after, ("as it was", "as it would be"))
    return Group(table, *map(Text, lines), *beside)


def _begins(receipt: Receipt, fact_id: str) -> str:
    number = receipt.numbers.get(f"fact/{fact_id}")
    text = None if number is None else receipt.text(number)
    return "(not in this copy)" if text is None else plain(text)


def _verdict(change: VerdictChange) -> Group:
    table = _beside("Verdict on the same answer")
    table.add_row("risk level", change.level_before.value, change.level_after.value)
    for name, two in (
        ("risk", change.risk),
        ("grounding", change.grounding),
        ("quality", change.quality),
    ):
        table.add_row(name, *_decimals(two))
    table.add_row("decision", change.decision_before, change.decision_after)
    table.add_row(
        "not met", "; ".join(change.violations_before), "; ".join(change.violations_after)
    )
    if change.class_before or change.class_after:
        table.add_row("class of the use", change.class_before, change.class_after)
    lines = ["the same verdict"] if change.same else []
    for claim in change.claims:
        words = (claim.attribution_before, claim.attribution_after)
        scores = (claim.entailment_before, claim.entailment_after)
        was, would = (
            f"{word or 'not scored'}, entailed {'–' if score is None else f'{score / SCALE:.3f}'}"
            for word, score in zip(words, scores, strict=True)
        )
        lines.append(f"{claim.claim_id}: {was} → {would}")
    return Group(table, *map(Text, lines))


def _beside(title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("", "as it was", "as it would be"):
        table.add_column(name, overflow="fold")
    return table


def _decimals(two: Two) -> tuple[str, str]:
    return f"{two.before / SCALE:.3f}", f"{two.after / SCALE:.3f}"


def _lines(before: str, after: str, names: tuple[str, str]) -> list[Text]:
    """A difference of two texts, line by line; none where they are the same or not here."""
    if not before or not after:
        return []
    lines = unified_diff(before.split("\n"), after.split("\n"), *names, lineterm="", n=1)
    return [Text(plain(line, whole=True), style=_LINES.get(line[:1], "")) for line in lines]


def _limits(limits: Iterable[str]) -> Text:
    return Text("\n".join(f"limit: {one}" for one in limits), style="dim")
