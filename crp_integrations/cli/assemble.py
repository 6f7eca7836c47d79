"""`crp assemble`."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from crp_integrations.cli import options, show
from crp_integrations.cli.opening import asked
from crp_integrations.envelope.cfs.records import AssembledContext

Budget = Annotated[
    int,
    typer.Option(
        "--budget", help="Tokens of the whole call; the settings keep some free, 800 by default."
    ),
]
Packing = Annotated[
    str | None,
    typer.Option(
        "--packing", help="greedy, interleaved or score_weighted; the setting when left out."
    ),
]


def assemble(
    query: Annotated[str, typer.Argument(help="What the context is for.", metavar="QUERY")],
    budget: Budget = 2000,
    packing: Packing = None,
    model: options.ModelName = None,
    store: options.Store = options.DEFAULT_STORE,
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Print a context with a marker for each document (CFS-021); no model is called."""
    # A text as given: the relay says which packings there are.
    named: Any = packing
    with asked(store, tenant) as relay:
        context = relay.assemble(query, budget, packing=named, model=model)
    if as_json:
        typer.echo(context.model_dump_json(indent=2))
    else:
        _draw(context)


def _draw(context: AssembledContext) -> None:
    console = show.terminal()
    # No line is broken: what is shown is what a model would be given.
    console.print(Text(show.plain(context.text, whole=True)), soft_wrap=True)
    seen, budget = context.properties, context.budget
    documents = {chunk.document_id for chunk in context.chunks}
    tokens = (
        f"{context.total_tokens} and {context.overhead_tokens} for markers, "
        f"of {budget.available}; {context.rendered_tokens}"
    )
    table = Table(title=f"Context: {context.packing}", title_justify="left", show_header=False)
    for name, value in (
        ("Chunks", f"{len(context.chunks)} of {len(documents)} documents"),
        ("Tokens", f"{tokens} as shown"),
        ("Counted by", context.tokenizer),
        ("Truncated", "yes" if context.truncated else "no"),
        ("Best in front", f"{seen.best_in_front} of {seen.best_wanted}"),
        ("Adjacency", "–" if seen.adjacency is None else f"{seen.adjacency:.3f}"),
        ("Coverage", "–" if seen.coverage is None else f"{seen.coverage:.3f}"),
        ("Text", context.text_hash),
        ("State", context.metadata.state_root),
    ):
        table.add_row(name, Text(value))
    reasons = Counter(drop.reason.value for drop in context.dropped)
    if reasons:
        why = ", ".join(f"{count} for {reason}" for reason, count in sorted(reasons.items()))
        table.add_row("Dropped", why)
    console.print(table)
