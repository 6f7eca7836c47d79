"""`crp guard`: run a policy's tests, show its decisions, and list the registered exceptions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.table import Column

from crp_integrations import Relay
from crp_integrations.cli import options
from crp_integrations.cli.options import existing_store
from crp_integrations.cli.terminal import print_table
from crp_integrations.engines.guards import guard_of, read_bundle, run_tests, tests_of
from crp_integrations.errors import RequestError
from crp_integrations.guard import access as shipped
from crp_integrations.guard.decisions import LOCAL, Action, Subject
from crp_integrations.guard.governed_exceptions import ExceptionGuard, LedgerEntry
from crp_integrations.guard.settings import GuardSettings
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import EventType

Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle",
        help="Policy folder. Default: the one in the settings, else the built-in policy.",
    ),
]


def guard(
    bundle: Bundle = None,
    tenant: Annotated[
        str, typer.Option("--tenant", help="Instead, show what the policy decides for a tenant.")
    ] = "",
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", help="With --tenant: label of the facts; repeatable."),
    ] = None,
    roles: Annotated[
        list[str] | None,
        typer.Option("--role", help="With --tenant: role of the subject; repeatable."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="With --tenant: the subject.")] = "local",
    action: Annotated[
        str, typer.Option("--action", help="With --tenant: read, write or erase.")
    ] = "read",
    exceptions: Annotated[
        bool,
        typer.Option("--exceptions", help="Instead, list the registered exceptions of --store."),
    ] = False,
    store: options.Store = options.DEFAULT_STORE,
    as_json: options.AsJson = False,
) -> None:
    """Run the tests of an access policy, or show what it decides.

    The status is 1 if a test fails. With --tenant, the command prints the policy's decision for a
    tenant and labels, and the status is 1 if it denies access.
    """
    if tenant and exceptions:
        raise RequestError("give one of --tenant and --exceptions")
    if (labels or roles) and not tenant:
        raise RequestError("--label and --role need --tenant; give it too")
    if exceptions:
        _list_exceptions(store, as_json=as_json)
    elif tenant:
        _decide(Subject(tenant=tenant, name=name, roles=tuple(roles or ())), action, labels, bundle)
    else:
        _run_tests(bundle, as_json=as_json)


def _decide(
    subject: Subject, action: str, labels: Sequence[str] | None, bundle: Path | None
) -> None:
    """Print a decision as one JSON object; status 1 when it denies."""
    if action not in get_args(Action):
        wanted = ", ".join(get_args(Action))
        raise RequestError(f"--action is {action!r:.40}, wanted one of {wanted}")
    # Without a bundle, a policy server in the settings decides here too.
    ours = Settings().guard
    asked = guard_of(
        GuardSettings(policy=True, bundle=bundle, entrypoint=ours.entrypoint)
        if bundle is not None
        else ours.model_copy(update={"policy": True})
    )
    decision = asked.decide(subject, action, tuple(sorted(set(labels or ()))))  # type: ignore[arg-type]
    typer.echo(json.dumps(decision.model_dump(mode="json"), indent=2))
    if not decision.allowed:
        raise typer.Exit(1)


def _run_tests(bundle: Path | None, *, as_json: bool) -> None:
    """Run the `*_test.rego` files of a policy; status 1 if a test fails."""
    ours = Settings().guard
    # Test the policy in force: that of the settings, else the built-in one.
    bundle = bundle or ours.bundle
    if bundle is None and ours.opa_url:
        raise RequestError(
            "guard.opa_url names a server, whose policy files are not here; give --bundle FOLDER"
        )
    if bundle is None:
        name = "access_test.rego"
        policy = shipped.access()
        tests = {name: (files(shipped) / name).read_text(encoding="utf-8")}
    else:
        policy = read_bundle(bundle, ours.entrypoint)
        tests = tests_of(bundle)
    if not tests:
        raise RequestError(f"policy {policy.name} has no *_test.rego file; nothing was tested")
    results = list(run_tests(policy, tests))
    wrong = [result for result in results if not result.passed]
    if as_json:
        failed = [{"module": o.module, "name": o.name, "failure": o.failure} for o in wrong]
        fields = {"policy": policy.name, "cases": len(results), "failed": failed}
        typer.echo(json.dumps(fields, indent=2))
    else:
        for result in wrong:
            typer.echo(f"{result.module}: {result.name}: {result.failure}")
        typer.echo(f"{policy.name}: {len(results)} cases, {len(wrong)} failed")
    if wrong:
        raise typer.Exit(1)


def _list_exceptions(store: str, *, as_json: bool) -> None:
    """List the registered exceptions: scope, owner, state and number of uses of each."""
    with _open_unmaintained(store, LOCAL.tenant) as relay:
        registered = relay.fabric.guard
        entries = registered.ledger() if isinstance(registered, ExceptionGuard) else ()
    uses: Counter[object] = Counter()
    for tenant in sorted({entry.scope.tenant for entry in entries}):
        # Each use is recorded in the journal of the tenant concerned.
        with (
            _open_unmaintained(store, tenant) as relay,
            relay.fabric.begin(write=False) as transaction,
        ):
            uses.update(
                event.data["exception"]
                for event in transaction.journal.events()
                if event.event_type is EventType.EXCEPTION_USED
            )
    with_uses = [entry.model_copy(update={"uses": uses[entry.id]}) for entry in entries]
    if as_json:
        typer.echo(json.dumps([entry.model_dump(mode="json") for entry in with_uses], indent=2))
    else:
        _draw_exceptions(with_uses)


def _open_unmaintained(store: str, tenant: str) -> Relay:
    subject = Subject(tenant=tenant)
    return Relay.open(existing_store(store), subject=subject, fabric={"maintain_on_open": False})


def _draw_exceptions(entries: list[LedgerEntry]) -> None:
    names = ("id", "owner", "state", "expires", "tenant", "subjects", "actions", "labels")
    rows = []
    for entry in entries:
        scope, expires = entry.scope, entry.expires_at.isoformat()
        lists = (" ".join(part) for part in (scope.subjects, scope.actions, scope.labels))
        row = (entry.id, entry.owner, entry.state, expires, scope.tenant, *lists, str(entry.uses))
        rows.append(row)
    print_table("Governed exceptions", (*names, Column("uses", justify="right")), rows)
