"""`crp receipt` commands that read a store: receipts, the public key, and the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from crp_integrations.cli import options, show_receipt
from crp_integrations.cli.opening import looking
from crp_integrations.cli.receipt_files import Out, pem_of, read_of, save, save_bytes
from crp_integrations.cli.show import many
from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.receipt.ledger import SignedHead, check_consistency
from crp_integrations.receipt.records import Receipt

if TYPE_CHECKING:
    from crp_integrations.relay.receipts import Receipts

Name = Annotated[str, typer.Argument(help="Id of a receipt or of its window.", metavar="ID")]


def register(app: typer.Typer) -> None:
    """Add the commands to the group."""
    app.command("list")(list_)
    app.command("export")(export)
    app.command("key")(key)
    app.command("head")(head)
    app.command("proof")(proof)


@contextmanager
def _kept(store: str, shared: str, residency: str, tenant: str) -> Iterator[Receipts]:
    """The receipts of a store that is there, as it is."""
    with looking(store, shared, residency, tenant) as relay:
        yield relay.receipts()


def list_(
    session: Annotated[str, typer.Option("--session", help="Only those of this session.")] = "",
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """List the receipts of a store: id, time, session, number and id of the window."""
    with _kept(store, shared, residency, tenant) as receipts:
        ids = receipts.ids(session, limit=receipts.head().head.size)
        show_receipt.listed((found for id_ in ids if (found := receipts.get(id_))), as_json=as_json)


def export(
    name: Name,
    out: Out = "",
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
) -> None:
    """Write the receipt of a window to a file, with the texts that the store still has."""
    with _kept(store, shared, residency, tenant) as receipts:
        found = _named(receipts, name)
    save(found, out)
    show_receipt.written(out, found.receipt_id)


def _named(receipts: Receipts, name: str) -> Receipt:
    found = receipts.get(name)
    if found is None:
        raise RequestError(f"the store has no receipt {name!r:.80}; crp receipt list names them")
    return found


def key(
    out: Out = "",
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
) -> None:
    """Write the public key of a store's receipts as PEM, and after it those of earlier epochs."""
    with _kept(store, shared, residency, tenant) as receipts:
        blocks = [pem_of(one) for one in reversed(receipts.keys)]
    save_bytes("".join(blocks).encode(), out)
    show_receipt.written(out, "public key")


def head(
    since: Annotated[
        str, typer.Option("--since", help="An earlier head: the log must only go on from it.")
    ] = "",
    out: Out = "",
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
) -> None:
    """Write the signed head of the log; status 1 when it does not go on from an earlier one."""
    before = read_of(since, SignedHead.read) if since else None
    with _kept(store, shared, residency, tenant) as receipts:
        now = receipts.head()
        if before is not None:
            before.check(receipts.keys)
            if before.head.size > now.head.size:
                reason = f"is {now.head.size}, that before was {before.head.size}"
                raise ReceiptBroken("head.size", reason)
            path = receipts.consistency(before.head.size, now.head.size)
            check_consistency(path, before.head, now.head)
    save_bytes(now.write(), out)
    show_receipt.written(out, f"head of a log of {many(now.head.size, 'receipt')}")


def proof(
    name: Name,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="Size of the log, as its head says; the present one."),
    ] = None,
    out: Out = "",
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
) -> None:
    """Write the proof that a receipt is in the log, for `crp receipt verify --proof`."""
    with _kept(store, shared, residency, tenant) as receipts:
        made = receipts.inclusion(_named(receipts, name).receipt_id, size)
    save_bytes(made.write(), out)
    show_receipt.written(out, f"proof in a log of {many(made.size, 'receipt')}")
