"""`crp ask` and `crp preview`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crp_integrations import Relay
from crp_integrations.cli import options, show
from crp_integrations.cli.opening import asked
from crp_integrations.cli.receipt_files import save
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
        show.answer(answer)


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
        show.preview(seen)
