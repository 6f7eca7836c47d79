"""`crp receipt …`: show, check, redact, replay and export receipts, with keys and proofs."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from crp_integrations.cli import options, receipt_views, terminal
from crp_integrations.cli.fabric import new_file
from crp_integrations.cli.options import existing_store, opened_relay
from crp_integrations.errors import ConfigError, CRPError, ReceiptBroken, RequestError
from crp_integrations.markup import counted
from crp_integrations.receipt.bundle import SCHEMA as BUNDLE
from crp_integrations.receipt.bundle import ReceiptBundle, read_bundle, verify_bundle
from crp_integrations.receipt.canonical import kind_of
from crp_integrations.receipt.comparison import diff as compare
from crp_integrations.receipt.ledger import Inclusion, SignedHead, check_consistency
from crp_integrations.receipt.page import page
from crp_integrations.receipt.reconstruction import content_of
from crp_integrations.receipt.records import Receipt, read, write
from crp_integrations.receipt.redaction import redact as without
from crp_integrations.receipt.replay import replay as again
from crp_integrations.receipt.replay_records import BROKEN, DIFFERS, NOT_RECOMPUTED, ReplayTools
from crp_integrations.receipt.signed_statement import KEY_BYTES
from crp_integrations.receipt.verify import Verified
from crp_integrations.receipt.verify import verify as check
from crp_integrations.receipt.whatif import Supposition, whatif

if TYPE_CHECKING:
    from crp_integrations.relay.receipts import Receipts
    from crp_integrations.relay.settings import Settings


_T = TypeVar("_T")
File = Annotated[str, typer.Argument(help="File of a receipt.", metavar="RECEIPT")]
_PEM = re.compile(rb"-----BEGIN [^-]+-----.*?-----END [^-]+-----", re.DOTALL)


def read_bytes(path: str) -> bytes:
    """The bytes of a file."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path!r:.200} cannot be read: {reason}") from error


def read_receipt(path: str) -> Receipt:
    """The receipt in a file, or in a bundle; only its structure is checked, nothing is verified."""
    bundle = bundle_in(path)
    return read_signed(path, read) if bundle is None else bundle.receipt


def receipt_bytes(path: str) -> bytes:
    """The file of a receipt, also of one in a bundle."""
    bundle = bundle_in(path)
    return read_bytes(path) if bundle is None else write(bundle.receipt)


def bundle_in(path: str) -> ReceiptBundle | None:
    """The bundle in a file; None for a file of another kind."""
    return read_signed(path, read_bundle) if kind_of(read_bytes(path)) == BUNDLE else None


def read_signed(path: str, reading: Callable[[bytes], _T]) -> _T:
    """The receipt, proof or head in a file, as `reading` parses it."""
    try:
        return reading(read_bytes(path))
    except ReceiptBroken as error:
        raise ReceiptBroken(f"{path!r:.200}, {error.place}", error.reason) from error


def read_public_keys(path: str) -> list[bytes]:
    """The public keys in a file: one or more in PEM, or one as 32 bytes, raw, base64 or hex."""
    data = read_bytes(path)
    blocks = _PEM.findall(data)
    if blocks:
        return [_key_of_pem(block, path) for block in blocks]
    if len(data) == KEY_BYTES:
        return [data]
    text = data.strip()
    for decode in (bytes.fromhex, lambda word: base64.b64decode(word, validate=True)):
        try:
            key = decode(text.decode("ascii"))
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return [key]
    raise ConfigError(
        f"{path!r:.200} contains no public key; wanted PEM, or {KEY_BYTES} bytes in hex or base64"
    )


def _key_of_pem(block: bytes, path: str) -> bytes:
    try:
        key = load_pem_public_key(block)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path!r:.200} has a PEM block that is not a public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{path!r:.200} has a {type(key).__name__}, wanted an Ed25519 key")
    return key.public_bytes_raw()


def public_key_pem(key: bytes) -> str:
    """A public key as PEM."""
    made = Ed25519PublicKey.from_public_bytes(key)
    return made.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def write_receipt(receipt: Receipt, out: str) -> None:
    """Write a receipt to a new file."""
    write_text(write(receipt), out)


def write_text(data: bytes, out: str) -> None:
    """Write UTF-8 text, such as canonical JSON, to a new file or standard output."""
    with new_file(out) as file:
        file.write(data.decode("utf-8"))


@options.with_scope
def export(
    name: Annotated[
        str, typer.Argument(help="Id of a receipt or of its window.", metavar="ID")
    ] = "",
    key: Annotated[
        bool,
        typer.Option(
            "--key", help="Instead, the store's public keys as PEM, the current one first."
        ),
    ] = False,
    head: Annotated[
        bool, typer.Option("--head", help="Instead, the signed head of the log of receipts.")
    ] = False,
    since: Annotated[
        str, typer.Option("--since", help="With --head: earlier head that the log must extend.")
    ] = "",
    proof: Annotated[
        bool, typer.Option("--proof", help="Instead, the proof that the receipt is in the log.")
    ] = False,
    bundle: Annotated[
        bool,
        typer.Option(
            "--bundle", help="Receipt, proof, head, keys and time stamp together in one file."
        ),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option("--size", min=1, help="With --proof: size of the log. Default: the current."),
    ] = None,
    out: options.Out = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
) -> None:
    """Write a receipt of a store to a file, or a public key, log head or proof.

    With --since, the status is 1 if the log does not extend the earlier head.
    """
    if key + head + proof + bundle > 1:
        raise RequestError("give one of --key, --head, --proof and --bundle")
    if bool(name) == (key or head):
        raise RequestError("give ID for a receipt, a proof or a bundle, not for --key or --head")
    if (since and not head) or (size is not None and not proof):
        raise RequestError("--since needs --head, and --size needs --proof")
    before = read_signed(since, SignedHead.read) if since else None
    with opened_relay(scope) as relay:
        receipts = relay.receipts()
        if key:
            made = "".join(map(public_key_pem, reversed(receipts.keys))).encode()
            what = "public key"
        elif head:
            now = receipts.head()
            if before is not None:
                _check_continued(receipts, before, now)
            made, what = now.write(), f"head of a log of {counted(now.head.size, 'receipt')}"
        elif bundle:
            made, what = receipts.bundle(name).write(), f"bundle of {name}"
        else:
            receipt = receipts.get(name)
            if receipt is None:
                raise RequestError(
                    f"the store has no receipt {name!r:.80}; crp receipt show lists them"
                )
            made, what = write(receipt), receipt.receipt_id
            if proof:
                included = receipts.inclusion(receipt.receipt_id, size)
                made = included.write()
                what = f"proof in a log of {counted(included.size, 'receipt')}"
    write_text(made, out)
    receipt_views.report_written(out, what)


def _check_continued(receipts: Receipts, before: SignedHead, now: SignedHead) -> None:
    before.check(receipts.keys)
    if before.head.size > now.head.size:
        reason = f"is {now.head.size}, but {before.head.size} in the earlier head"
        raise ReceiptBroken("head.size", reason)
    path = receipts.consistency(before.head.size, now.head.size)
    check_consistency(path, before.head, now.head)


def list_receipts(session: str, scope: options.StoreScope, *, as_json: bool) -> None:
    """List the receipts of a store: id, time, session, number and id of the window."""
    with opened_relay(scope) as relay:
        receipts = relay.receipts()
        ids = receipts.ids(session, limit=receipts.head().head.size)
        receipt_views.draw_receipt_list(
            (receipt for id_ in ids if (receipt := receipts.get(id_))), as_json=as_json
        )


def replay(
    file: File,
    budget: Annotated[
        int | None, typer.Option("--budget", min=0, help="What if: another budget in tokens.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", help="What if: without the fact of this id; repeatable."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", help="What if: another safety policy.")
    ] = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Use only the receipt, no embedder or verifier.")
    ] = False,
    store: Annotated[
        str, typer.Option("--store", help="Take weights that the receipt withholds from a store.")
    ] = "",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Status 3 if a part that decides was not recomputed."),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Repeat ranking, packing, rendering, examination, judge and policy; status 1 if one differs.

    The last line begins with the word for the receipt: holds, differs, broken or not recomputed. A
    what-if option changes one input; its result is always one JSON document.
    """
    from crp_integrations.relay.settings import load

    settings = load(Path(existing_store(store)) if store else None)
    change = Supposition(budget_tokens=budget, without=tuple(without or ()), policy=policy)
    word = BROKEN
    try:
        receipt = verified_receipt(file)
        word = DIFFERS
        tools = _replay_tools(receipt, settings, own=bool(store), asked=not recorded)
        if change != Supposition():
            typer.echo(whatif(receipt, change, tools).model_dump_json(indent=2))
            return
        replayed = again(receipt, tools)
    except ReceiptBroken:
        if not as_json:
            terminal.terminal().print(receipt_views.receipt_word(word))
        raise
    terminal.print_record(replayed, receipt_views.draw_replay, as_json=as_json)
    if not replayed.same:
        raise typer.Exit(1)
    if strict and replayed.word == NOT_RECOMPUTED:
        raise typer.Exit(3)


def verified(file: str, *, contents: bool = True, **known: Any) -> Verified:
    """The verification of a receipt, or of a bundle with its proof, keys and time stamp."""
    bundle = bundle_in(file)
    if bundle is None:
        return check(read_bytes(file), contents=contents, **known)
    return read_signed(file, lambda _: verify_bundle(bundle, contents=contents, **known))


def verified_receipt(file: str) -> Receipt:
    """The receipt in a file; raises if it, or its bundle, does not verify."""
    verification = verified(file, contents=False)
    if not verification.ok:
        raise ReceiptBroken(f"{file!r:.200}, {verification.place}", verification.reason)
    return read_receipt(file)


def _replay_tools(receipt: Receipt, settings: Settings, *, own: bool, asked: bool) -> ReplayTools:
    """The settings and engines for a replay."""
    from crp_integrations.relay.defaults import (
        chosen_embedder,
        default_policy,
        default_verifier,
        tokenizers,
    )

    arguments: dict[str, Any] = {"envelope": settings.envelope, "dpe": settings.dpe} if own else {}
    if not asked:
        return ReplayTools(**arguments)
    model = receipt.content.get("model")
    # The content may have any shape here; only the replay checks it.
    name = str(model.get("asked", "")) if isinstance(model, Mapping) else ""
    if name:
        # Without the model's tokenizer the recorded counts are used, and the replay says so.
        with suppress(CRPError):
            arguments["counter"] = tokenizers(settings)(name)
    return ReplayTools(
        embedder=chosen_embedder(None, settings),
        # Receipts of the preset `literal` need `alignment`, so it is the fallback.
        verifier=default_verifier(settings.dpe.verifier) or default_verifier("alignment"),
        policy=default_policy(),
        **arguments,
    )


app = options.group("Show, check, replay and share receipts of answers.")
app.command("replay")(replay)
app.command("export")(export)


@app.command("show")
@options.with_scope
def show(
    file: Annotated[
        str,
        typer.Argument(
            help="File of a receipt. Default: list the store's receipts.", metavar="RECEIPT"
        ),
    ] = "",
    against: Annotated[
        str, typer.Option("--diff", help="Another receipt; status 1 if the two differ.")
    ] = "",
    html: Annotated[
        str,
        typer.Option("--html", help="Instead, write a page that verifies itself to a new file."),
    ] = "",
    others: Annotated[
        list[str] | None,
        typer.Option("--with", help="With --html: receipt of another window; repeatable."),
    ] = None,
    session: Annotated[
        str, typer.Option("--session", help="List only receipts of this session.")
    ] = "",
    scope: options.StoreScope = options.DEFAULT_SCOPE,
    as_json: options.AsJson = False,
) -> None:
    """Show a receipt: question, answer, what the model saw, verdict per claim, policy.

    The status is 1 if it does not verify, or differs from the receipt of --diff in more than ids,
    times and chain positions.
    """
    if (others and not html) or (against and html):
        raise RequestError("--with needs --html, and --diff cannot be combined with --html")
    if not file and (against or html):
        raise RequestError("no receipt is given; give RECEIPT")
    if not file:
        list_receipts(session, scope, as_json=as_json)
        return
    if session:
        raise RequestError("--session is for the list of a store; leave RECEIPT out")
    if against:
        compared = compare(verified_receipt(file), verified_receipt(against))
        terminal.print_record(compared, receipt_views.draw_comparison, as_json=as_json)
        if not compared.same:
            raise typer.Exit(1)
        return
    # This raises for a file that is not a receipt; one that does not verify is still shown.
    receipt = read_receipt(file)
    data = receipt_bytes(file)
    try:
        verification = verified(file)
    except ReceiptBroken as error:
        place, reason = error.place, error.reason
        verification = Verified(ok=False, word=BROKEN, place=place, reason=reason, steps=())
    if html:
        other_receipts = [(read_receipt(path), receipt_bytes(path))[1] for path in others or ()]
        write_text(page(data, other_receipts, verification).encode(), html)
        receipt_views.report_written(html, "page")
        return
    if as_json:
        # Only the signed payload, without texts.
        typer.echo(receipt.signed.payload.decode())
    else:
        # Report malformed content before anything is printed.
        content_of(receipt)
        receipt_views.draw_receipt(receipt, verification)
    if not verification.ok:
        raise typer.Exit(1)


@app.command("verify")
def verify(
    file: File,
    key: Annotated[
        str, typer.Option("--key", help="File of the public key that must have signed it.")
    ] = "",
    parents: Annotated[
        list[str] | None,
        typer.Option("--parent", help="Receipt of a window that it follows; repeatable."),
    ] = None,
    proof: Annotated[
        str, typer.Option("--proof", help="Proof that it is in a log; needs --head.")
    ] = "",
    head: Annotated[str, typer.Option("--head", help="Signed head of the log.")] = "",
    as_json: options.AsJson = False,
) -> None:
    """Check signature, tree, texts, chain and contents; status 1 and the place if one is wrong.

    A bundle brings its proof, its head and the keys. The last line is the word for the receipt:
    holds, differs, broken or not recomputed.
    """
    if bool(proof) != bool(head):
        raise RequestError("--proof and --head go together; give both or none")
    pins = read_public_keys(key) if key else None
    before = [verified(path, key=pins) for path in parents or ()]
    bad = next((n for n, parent in enumerate(before) if not parent.ok), None)
    if bad is not None:
        name = (parents or ())[bad]
        raise ReceiptBroken(f"{name!r:.200}, {before[bad].place}", before[bad].reason)
    follows = [read_receipt(path) for path in parents or ()]
    try:
        bundle = bundle_in(file)
        if bundle is not None and proof:
            raise RequestError(f"{file!r:.200} is a bundle with its own proof; leave out --proof")
        known: dict[str, Any] = {"key": pins, "parents": follows}
        if proof:
            known["inclusion"] = read_signed(proof, Inclusion.read)
            known["head"] = read_signed(head, SignedHead.read)
        verification = verified(file, **known)
    except ReceiptBroken:
        # A bundle that is broken around its receipt has no steps to show, but the word is the same.
        if not as_json:
            terminal.terminal().print(receipt_views.receipt_word(BROKEN))
        raise
    if bundle is not None and not as_json:
        receipt_views.draw_bundle(bundle)
    terminal.print_record(verification, receipt_views.draw_verification, as_json=as_json)
    if not verification.ok:
        raise typer.Exit(1)


@app.command("redact")
def redact(
    file: File,
    facts: Annotated[
        list[str] | None, typer.Option("--fact", help="Id of a fact; repeatable.")
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option("--source", help="Id of a source, for all of its facts; repeatable."),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Option("--text", help="Name of another text, such as request; repeatable."),
    ] = None,
    keep_quoting: Annotated[
        bool,
        typer.Option(
            "--keep-quoting",
            help="Keep answer, earlier answers and documents; context, prompts, judge and seal go.",
        ),
    ] = False,
    unshown: Annotated[
        bool,
        typer.Option("--unshown", help="Leave out the candidates that no model was shown."),
    ] = False,
    out: options.Out = "",
) -> None:
    """Write a copy without some texts; its signature and tree still verify."""
    if not (facts or sources or texts or unshown):
        raise RequestError("nothing would be left out; give --fact, --source, --text or --unshown")
    receipt = read_receipt(file)
    copy = without(
        receipt,
        facts=facts or (),
        sources=sources or (),
        names=texts or (),
        quoting=not keep_quoting,
        unshown=unshown,
    )
    bundle = bundle_in(file)
    write_text(write(copy) if bundle is None else bundle.with_receipt(copy).write(), out)
    receipt_views.report_redacted(receipt, copy, out)
