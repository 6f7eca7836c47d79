"""`crp receipt …` on files: show, check and redact receipts, and draw their pages."""

from __future__ import annotations

from typing import Annotated

import typer

from crp_integrations.cli import options, receipt_files, receipt_replay, receipt_views, terminal
from crp_integrations.cli.receipt_files import (
    File,
    Out,
    read_bytes,
    read_public_keys,
    read_receipt,
    read_signed,
    write_receipt,
    write_text,
)
from crp_integrations.errors import ReceiptBroken, RequestError
from crp_integrations.receipt.ledger import Inclusion, SignedHead
from crp_integrations.receipt.page import page
from crp_integrations.receipt.reconstruction import content_of
from crp_integrations.receipt.redaction import redact as without
from crp_integrations.receipt.verify import verify as check

app = typer.Typer(
    help="Show, check, replay and share the receipt of an answer.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
receipt_replay.register(app)
receipt_files.register(app)


@app.command("show")
def show(file: File, as_json: options.AsJson = False) -> None:
    """Show a receipt: question, answer, what the model saw, verdict per claim, policy.

    Status 1 when it does not verify.
    """
    data = read_bytes(file)
    found = check(data)
    # What is no receipt is refused here.
    receipt = read_receipt(file)
    if as_json:
        # What was signed, and no text.
        typer.echo(receipt.signed.payload.decode())
    else:
        # Before anything is drawn, what a signer may have made wrong is named.
        content_of(receipt)
        receipt_views.draw_receipt(receipt, found)
    if not found.ok:
        raise typer.Exit(1)


@app.command("verify")
def verify(
    file: File,
    key: Annotated[
        str, typer.Option("--key", help="File of the public key that must have signed it.")
    ] = "",
    parents: Annotated[
        list[str] | None,
        typer.Option("--parent", help="Receipt of a window that it follows; may be repeated."),
    ] = None,
    proof: Annotated[
        str, typer.Option("--proof", help="Proof that it is in a log; goes with --head.")
    ] = "",
    head: Annotated[str, typer.Option("--head", help="Signed head of the log.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Check signature, tree, texts and chain; status 1 and the place when one does not hold."""
    if bool(proof) != bool(head):
        raise RequestError("--proof and --head go together; give both or none")
    pins = read_public_keys(key) if key else None
    before = [check(read_bytes(one), key=pins) for one in parents or ()]
    bad = next((n for n, one in enumerate(before) if not one.ok), None)
    if bad is not None:
        name = (parents or ())[bad]
        raise ReceiptBroken(f"{name!r:.200}, {before[bad].place}", before[bad].reason)
    found = check(
        read_bytes(file),
        key=pins,
        parents=[read_receipt(one) for one in parents or ()],
        inclusion=read_signed(proof, Inclusion.read) if proof else None,
        head=read_signed(head, SignedHead.read) if head else None,
    )
    terminal.print_record(found, receipt_views.draw_verification, as_json=as_json)
    if not found.ok:
        raise typer.Exit(1)


@app.command("redact")
def redact(
    file: File,
    facts: Annotated[
        list[str] | None, typer.Option("--fact", help="Id of a fact; may be repeated.")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", help="Id of a source, for all of its facts; may be repeated."),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", help="Name of another text, such as request; may be repeated."),
    ] = None,
    keep_quoting: Annotated[
        bool,
        typer.Option(
            "--keep-quoting", help="Keep the answer and other texts that may quote the facts."
        ),
    ] = False,
    out: Out = "",
) -> None:
    """Write a copy without some texts; its signature and tree still verify."""
    if not (facts or sources or texts):
        raise RequestError("nothing is left out; give --fact, --source or --text")
    receipt = read_receipt(file)
    copy = without(
        receipt,
        facts=facts or (),
        sources=sources or (),
        names=texts or (),
        quoting=not keep_quoting,
    )
    write_receipt(copy, out)
    receipt_views.report_redacted(receipt, copy, out)


@app.command("html")
def html(
    file: File,
    others: Annotated[
        list[str] | None,
        typer.Option("--with", help="Receipt of another window of the session; may be repeated."),
    ] = None,
    out: Out = "",
) -> None:
    """Write a page that shows the receipt and checks it in the browser, without a network."""
    # What is no receipt gets no page; one that does not hold gets a page that says so.
    for one in (file, *(others or ())):
        read_receipt(one)
    write_text(page(read_bytes(file), [read_bytes(one) for one in others or ()]).encode(), out)
    receipt_views.report_written(out, "page")
