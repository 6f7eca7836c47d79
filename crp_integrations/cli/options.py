"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Final, cast

import typer

from crp_integrations.errors import RequestError
from crp_integrations.vocabulary import BudgetTokens as Budget
from crp_integrations.vocabulary import GroundingMode, SourceKind

DEFAULT_STORE = "crp-store"


def read_budget(given: str | None) -> Budget | None:
    """A budget as it is typed."""
    if given in (None, "auto", "window"):
        return cast("Budget | None", given)
    if not str(given).isdecimal() or int(str(given)) < 1:
        raise RequestError(f"--budget-tokens is {given!r:.40}, wanted 1 or more, auto or window")
    return int(str(given))


# A text, since a path would turn "" into the current folder.
Store = Annotated[
    str,
    typer.Option("--store", envvar="CRP_STORE", help="Folder of the store."),
]
Kind = Annotated[
    SourceKind | None,
    typer.Option("--kind", help="Kind of source; a file's own front matter wins when left out."),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="Provider string as LiteLLM takes it, or extractive."),
]
BudgetTokens = Annotated[
    str | None,
    typer.Option(
        "--budget-tokens",
        help="Most tokens of the context; auto takes what the question needs, window all.",
    ),
]
Grounding = Annotated[
    GroundingMode,
    typer.Option("--grounding", help="How far the model may go beyond the context."),
]
Session = Annotated[
    str | None,
    typer.Option("--session", envvar="CRP_SESSION", help="A name of yours, or a session's id."),
]
Cache = Annotated[
    str | None,
    typer.Option("--cache", help="Directives such as no-store, max-age=3600 or reuse-ckf."),
]
Policy = Annotated[
    str | None,
    typer.Option("--policy", help="Safety policy, such as 'halt-on CRITICAL; block-pii'."),
]
StrategyName = Annotated[
    str | None,
    typer.Option("--strategy", help="How to dispatch: push, reflexive, hierarchical, … or auto."),
]
Judge = Annotated[
    str | None,
    typer.Option(
        "--judge",
        help="Model that checks the answer, as LiteLLM names it; self for the one that answers.",
    ),
]
JudgeBase = Annotated[
    str | None,
    typer.Option("--judge-base", help="Address of the judge's provider, as of a local server."),
]
JudgeWhen = Annotated[str | None, typer.Option("--judge-when", help="always, doubt or sample:0.1.")]
JudgeFailure = Annotated[
    str | None,
    typer.Option("--judge-failure", help="Where the judge fails: report, or halt the answer."),
]
Continue = Annotated[
    list[str] | None,
    typer.Option("--continue", help="Continuation id of a window to go on from; repeatable."),
]
Shared = Annotated[
    str,
    typer.Option("--shared", help="A shared namespace of the store, for the operator."),
]
Residency = Annotated[
    str, typer.Option("--residency", help="A region of the store, with a trail of its own.")
]
Tenant = Annotated[
    str, typer.Option("--tenant", help="A gateway's tenant, for the operator; else the local one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True, slots=True)
class StoreScope:
    """The part of a store that a command works on.

    Attributes:
        shared: name of a shared namespace, for the operator; empty for a tenant's own.
        residency: a region, which is a store of its own; empty for the store itself.
        tenant: a gateway's tenant, for the operator; empty for the local one.
    """

    store: str = DEFAULT_STORE
    shared: str = ""
    residency: str = ""
    tenant: str = ""


DEFAULT_SCOPE: Final = StoreScope()
_SCOPE_OPTIONS: Final = {"store": Store, "shared": Shared, "residency": Residency, "tenant": Tenant}


def with_scope(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its parameter `scope`."""
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.annotation is not StoreScope:
            parameters.append(parameter)
            continue
        parameters += (
            parameter.replace(name=name, annotation=kind, default=getattr(DEFAULT_SCOPE, name))
            for name, kind in _SCOPE_OPTIONS.items()
        )

    @wraps(command)
    def called(**given: Any) -> None:
        scope = StoreScope(**{name: given.pop(name) for name in _SCOPE_OPTIONS})
        command(scope=scope, **given)

    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called


# What stands for the model that answers, where a judge is named.
OWN: Final = "self"


def judging(
    judge: str | None, base: str | None, when: str | None, failure: str | None
) -> dict[str, Any]:
    """The arguments of `Relay.open` and `ask` that the options of a judge stand for."""
    if base is not None and judge in (None, OWN):
        raise RequestError("--judge-base goes with --judge NAME; give both")
    source: Any = True if judge == OWN else judge
    if base is not None:
        source = {"model": judge, "api_base": base}
    arguments = {"judge": source, "judge_when": when, "judge_failure": failure}
    return {name: value for name, value in arguments.items() if value is not None}
