"""`crp ingest`, `crp ask` and `crp quickstart`: put documents into a store and ask questions."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crp_integrations import Relay, examine
from crp_integrations.cli import options, terminal
from crp_integrations.cli.options import questioned_relay, subject_of
from crp_integrations.errors import ConfigError, IngestError, RequestError
from crp_integrations.fabric.records import IngestReport
from crp_integrations.receipt.records import Receipt
from crp_integrations.relay.records import Answer
from crp_integrations.vocabulary import GroundingMode, SourceKind

if TYPE_CHECKING:
    from crp_integrations.fabric.ingest.ingestion_plan import AnyDocument


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
        str, typer.Option("--receipt", help="New file for the receipt of the answer.")
    ] = "",
    preview: Annotated[
        bool,
        typer.Option("--preview", help="Only show what the context would be; call no model."),
    ] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Also print the headers.")] = False,
    store: options.Store = options.DEFAULT_STORE,
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Ask a question: answer, context, verdict per claim."""
    if receipt and Path(receipt).exists():
        # Checked before a model call costs money.
        raise ConfigError(f"{receipt!r:.200} exists already; give a new file for the receipt")
    judging = options.judging(judge, judge_base, judge_when, judge_failure)
    asking: dict[str, Any] = {
        "model": model,
        "budget_tokens": options.read_budget(budget_tokens),
        "grounding": grounding,
        "cache": cache,
        "session_id": session,
        "policy": policy,
        "strategy": strategy,
        "continuation_ids": continues,
        **judging,
    }
    if preview:
        if receipt:
            raise RequestError("--preview has no answer and no receipt; leave --receipt out")
        with questioned_relay(store, tenant) as relay:
            seen = relay.preview(question, **asking)
        terminal.print_record(seen, terminal.draw_preview, as_json=as_json)
        return
    with questioned_relay(store, tenant) as relay:
        answer = relay.ask(question, **asking)
        if receipt:
            from crp_integrations.cli.receipt import write_receipt

            write_receipt(_receipt_of_answer(relay, answer), receipt)
    terminal.print_record(answer, partial(terminal.draw_answer, headers=headers), as_json=as_json)


def _receipt_of_answer(relay: Relay, answer: Answer) -> Receipt:
    receipt = relay.receipt(answer.receipt_id) if answer.receipt_id else None
    if receipt is None:
        raise RequestError("this answer has no receipt; the setting receipts is off")
    return receipt


# Strings: a `Path` would turn an empty argument into the current folder.
Paths = Annotated[list[str], typer.Argument(help="Files and folders.")]


def ingest(
    paths: Paths,
    kind: options.Kind = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", help="Time until the facts become STALE, such as P90D or PT12H."),
    ] = None,
    bulk: Annotated[
        bool,
        typer.Option(
            "--bulk",
            help="Commit as it goes, and leave communities to maintain; run it again after a stop.",
        ),
    ] = False,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Put files and folders into the store, all or none."""
    from crp_integrations.loaders.files import skipped_files

    subject = subject_of(tenant, shared)
    with (
        Relay.open(store, subject=subject, shared=shared, residency=residency) as relay,
        terminal.progress_bar(quiet=as_json) as advance,
    ):
        ingest_all = partial(relay.ingest, kind=kind, ttl=ttl, progress=advance)
        report = _loaded(relay, paths, ingest_all) if bulk else ingest_all(paths)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        terminal.draw_ingestion(report, store, skipped_files(paths))


# Documents that a bulk load commits at a time.
_BULK_DOCUMENTS = 500


def _loaded(
    relay: Relay, paths: list[str], ingest_all: Callable[[Any], IngestReport]
) -> IngestReport:
    """Ingest in many transactions; the report of all of them."""
    from crp_integrations.loaders.documents import load_documents

    documents = _distinct(load_documents(paths))
    reports: list[IngestReport] = []
    with relay.fabric.loading():
        while part := list(islice(documents, _BULK_DOCUMENTS)):
            reports.append(ingest_all(part))
    joined = {
        name: tuple(chain.from_iterable(getattr(report, name) for report in reports))
        for name in ("sources", "facts", "stale", "returned", "unchanged", "skipped")
    }
    return IngestReport(**joined, state_hash=relay.fabric.state_hash())


def _distinct(documents: Iterable[AnyDocument]) -> Iterator[AnyDocument]:
    """Drop duplicates in different batches too: a URI with equal content counts once."""
    hashes: dict[str, str] = {}
    for document in documents:
        if document.uri not in hashes:
            hashes[document.uri] = document.document_hash
            yield document
        elif hashes[document.uri] != document.document_hash:
            raise IngestError(f"{document.uri} is given twice with different content")


PACKAGED = "documentation"
IN_CHECKOUT = "docs"
FIRST_PAGE = "index.md"


def documentation_path() -> Path:
    """The folder of Markdown pages that the quickstart reads.

    A wheel contains the pages inside the package; in a checkout they are in `docs` next to it.
    """
    package = Path(str(files("crp_integrations")))
    for folder in (package / PACKAGED, package.parent / IN_CHECKOUT):
        if (folder / FIRST_PAGE).is_file():
            return folder
    raise ConfigError(
        "the package's documentation is missing; install crp-integrations again from its wheel"
    )


QUESTION = "Where does the risk score of a HIGH answer begin?"
PAGES = ("explanation/checking", "reference/errors", "contributing")
URI_PREFIX = "package:crp-integrations/"
FOLDER_PREFIX = "crp-quickstart-"
FIGURE = re.compile(r"\d+\.\d+")


def quickstart(
    store: Annotated[
        str | None,
        typer.Option("--store", envvar="CRP_STORE", help="Store folder. Default: temporary."),
    ] = None,
    headers: Annotated[bool, typer.Option("--headers", help="Also print the headers.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Answer one question, then detect a changed figure in it.

    The question is about pages of this package's documentation and needs no API key. To check
    rephrased answers as well, add a judge model with `crp ask --judge NAME`.
    """
    with ExitStack() as stack:
        if store is None:
            store = stack.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX))
        relay = stack.enter_context(Relay.open(store))
        with terminal.progress_bar(quiet=as_json) as advance:
            ingested = relay.ingest(
                [documentation_path() / f"{page}.md" for page in PAGES],
                kind=SourceKind.OFFICIAL,
                prefix=URI_PREFIX,
                progress=advance,
            )
        answer = relay.ask(QUESTION)
    # Change a figure in a sentence of the answer, as if the model had made a mistake.
    quoted = [quotation.text for claim in answer.report.claims for quotation in claim.quotations]
    sentence = next(text for text in quoted if FIGURE.search(text))
    changed = FIGURE.sub(lambda match: f"{float(match[0]) + 0.37:.2f}", sentence, count=1)
    report = examine(changed, answer.envelope, QUESTION)
    if as_json:
        parts = {"ingested": ingested, "answer": answer, "report_on_changed": report}
        fields = {name: part.model_dump(mode="json") for name, part in parts.items()}
        typer.echo(json.dumps({**fields, "changed": changed}, indent=2))
        return
    terminal.draw_ingestion(ingested, store, ())
    terminal.draw_question(QUESTION)
    terminal.draw_answer(answer, headers=headers)
    terminal.draw_question("The same answer with one changed figure")
    terminal.draw_verdict(changed, report, answer.envelope)
