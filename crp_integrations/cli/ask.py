"""`crp ask`: a question to a store, or what its context would be."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from crp_integrations import Relay
from crp_integrations.cli import options, terminal
from crp_integrations.cli.receipt_files import write_receipt
from crp_integrations.cli.store_access import questioned_relay
from crp_integrations.errors import ConfigError, RequestError
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import GroundingMode


def ask(
    question: Annotated[str, typer.Argument(help="The question.")],
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
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Show what the context would be; no model is called."),
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers too.")] = False,
    store: options.Store = options.DEFAULT_STORE,
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Ask a question: answer, context, verdict per claim."""
    if receipt and Path(receipt).exists():
        # Checked before a model is paid.
        raise ConfigError(f"{receipt!r:.200} is there already; give a new file for the receipt")
    judging = options.judging(judge, judge_base, judge_when, judge_failure)
    packing: dict[str, Any] = {
        "model": model,
        "budget_tokens": options.read_budget(budget_tokens),
        "grounding": grounding,
        "cache": cache,
    }
    if preview:
        idle: dict[str, object] = {
            "session": session,
            "policy": policy,
            "strategy": strategy,
            "judge": judging,
        }
        idle |= {"continue": continues, "receipt": receipt}
        if option_names := [f"--{name}" for name, value in idle.items() if value]:
            raise RequestError(f"--preview calls no model; leave {', '.join(option_names)} out")
        with questioned_relay(store, tenant) as relay:
            seen = relay.preview(question, **packing)
        terminal.print_record(seen, terminal.draw_preview, as_json=as_json)
        return
    with questioned_relay(store, tenant) as relay:
        answer = relay.ask(
            question,
            **packing,
            session_id=session,
            policy=policy,
            strategy=strategy,
            continuation_ids=continues,
            **judging,
        )
        if receipt:
            write_receipt(_receipt_of_answer(relay, answer), receipt)
    terminal.print_record(answer, partial(terminal.draw_answer, headers=headers), as_json=as_json)


def _receipt_of_answer(relay: Relay, answer: Answer) -> Receipt:
    receipt = relay.receipt(answer.receipt_id) if answer.receipt_id else None
    if receipt is None:
        raise RequestError("there is no receipt on this answer; the setting receipts is off")
    return receipt
