"""`crp ask`, `preview`, `assemble` and `tokens`: a question, its context, and counts."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from crp_integrations import Relay, count_tokens
from crp_integrations.cli import options, terminal
from crp_integrations.cli.receipt_files import write_receipt
from crp_integrations.cli.store_access import questioned_relay
from crp_integrations.envelope.cfs.records import AssembledContext
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.records import Answer, TokenCount
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
    with questioned_relay(store, tenant) as relay:
        answer = relay.ask(
            question,
            model=model,
            budget_tokens=options.read_budget(budget_tokens),
            grounding=grounding,
            session_id=session,
            cache=cache,
            policy=policy,
            strategy=strategy,
            continuation_ids=continues,
            **judging,
        )
        if receipt:
            write_receipt(_receipt_of_answer(relay, answer), receipt)
    terminal.print_record(answer, terminal.draw_answer, as_json=as_json)


def _receipt_of_answer(relay: Relay, answer: Answer) -> Receipt:
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
    with questioned_relay(store, tenant) as relay:
        seen = relay.preview(
            question,
            model=model,
            budget_tokens=options.read_budget(budget_tokens),
            grounding=grounding,
            cache=cache,
        )
    terminal.print_record(seen, terminal.draw_preview, as_json=as_json)


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
    with questioned_relay(store, tenant) as relay:
        context = relay.assemble(query, budget, packing=named, model=model)
    terminal.print_record(context, _draw_context, as_json=as_json)


def _draw_context(context: AssembledContext) -> None:
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


STANDARD_INPUT = "-"


def tokens(
    file: Annotated[str, typer.Argument(help="A text or a JSON list of messages; - reads input.")],
    model: Annotated[str, typer.Option("--model", help="Provider string as LiteLLM takes it.")],
    plain: Annotated[
        bool, typer.Option("--text", help="Count the file as it is, even a list of messages.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Count the tokens of a file as a model does, and say how sure the count is.

    A JSON list of messages, or an object with `messages` and `tools` as OpenAI takes them, is
    counted with the format that the model's family puts around them.
    """
    text = _read_text(file)
    messages, tools = (None, []) if plain else _conversation(text)
    if messages is None:
        count = count_tokens(text, model)
    else:
        count = count_tokens(messages, model, tools=tools)
    if as_json:
        typer.echo(count.model_dump_json(indent=2))
        return
    typer.echo(f"{count.n} tokens ({count.exactness.value}: {count.source})")
    if messages is not None:
        typer.echo(_overhead(count, len(messages), len(tools)))


def _overhead(count: TokenCount, messages: int, tools: int) -> str:
    noun = "message" if messages == 1 else "messages"
    beside = f" and for {tools} {'tool' if tools == 1 else 'tools'}" if tools else ""
    return f"{count.overhead} of them around {messages} {noun}{beside}"


def _read_text(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no usable path"
        raise RequestError(f"{file!r:.80} cannot be read: {reason}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{file!r:.80} is no UTF-8 text: byte {error.start} does not decode"
        ) from error


def _conversation(text: str) -> tuple[list[Any] | None, list[Any]]:
    """Messages and tools of a file; None for the messages when it is anything else."""
    if text.lstrip()[:1] not in ("[", "{"):
        return None, []
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None, []
    tools: Any = []
    if isinstance(given, Mapping):
        tools = given.get("tools") or []
        given = given.get("messages")
    said = isinstance(given, list) and given and isinstance(tools, list)
    if not said or not all(isinstance(one, Mapping) and "role" in one for one in given):
        return None, []
    return given, tools
