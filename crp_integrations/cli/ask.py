"""`crp ask`, `crp preview` and `crp assemble`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from crp_integrations import Relay
from crp_integrations.cli import options, terminal
from crp_integrations.cli.receipt_files import save
from crp_integrations.cli.store_access import asked
from crp_integrations.envelope.cfs.records import AssembledContext
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import GroundingMode

Question = Annotated[str, typer.Argument(help="The question.")]


def ask(
    question: Question,
    model: options.ModelName = None,
    budget_tokens: options.BudgetTokens = None,
    grounding: options.Grounding = GroundingMode.PREFERRED,
    session: options.Session = None,
    cache: options.Cache = None,
    policy: options.Policy = None,
    strategy: options.StrategyName = None,
    continues: options.Continue = None,
    judge: options.Judge = None,
    judge_base: options.JudgeBase = None,
    judge_when: options.JudgeWhen = None,
    judge_failure: options.JudgeFailure = None,
    receipt: Annotated[
        str, typer.Option("--receipt", help="A new file for the receipt of the answer.")
    ] = "",
    store: options.Store = options.DEFAULT_STORE,
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Ask a question: the answer, what the model saw, the verdict per claim, the headers."""
    if receipt and Path(receipt).exists():
        # Before a model is paid.
        raise ConfigError(f"{receipt!r:.200} is there already; give a new file for the receipt")
    judging = options.judging(judge, judge_base, judge_when, judge_failure)
    with asked(store, tenant) as relay:
        answer = relay.ask(
            question,
            model=model,
            budget_tokens=budget_tokens,
            grounding=grounding,
            session_id=session,
            cache=cache,
            policy=policy,
            strategy=strategy,
            continuation_ids=continues,
            **judging,
        )
        if receipt:
            save(_signed(relay, answer), receipt)
    if as_json:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        terminal.answer(answer)


def _signed(relay: Relay, answer: Answer) -> Receipt:
    found = relay.receipt(answer.receipt_id) if answer.receipt_id else None
    if found is None:
        raise RequestError("there is no receipt on this answer; the setting receipts is off")
    return found


def preview(
    question: Question,
    model: options.ModelName = None,
    budget_tokens: options.BudgetTokens = None,
    grounding: options.Grounding = GroundingMode.PREFERRED,
    cache: options.Cache = None,
    store: options.Store = options.DEFAULT_STORE,
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Show what the context for a question would be, without asking a model."""
    with asked(store, tenant) as relay:
        seen = relay.preview(
            question, model=model, budget_tokens=budget_tokens, grounding=grounding, cache=cache
        )
    if as_json:
        typer.echo(seen.model_dump_json(indent=2))
    else:
        terminal.preview(seen)


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
    console = terminal.terminal()
    # No line is broken: what is shown is what a model would be given.
    console.print(Text(terminal.plain(context.text, whole=True)), soft_wrap=True)
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
