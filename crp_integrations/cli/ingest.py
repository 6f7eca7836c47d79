"""`crp ingest` and `crp quickstart`."""

from __future__ import annotations

import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from crp_integrations import Relay
from crp_integrations.cli import options, terminal
from crp_integrations.cli.store_access import subject_of
from crp_integrations.errors import ConfigError
from crp_integrations.vocabulary import SourceKind

# As text: a `Path` would make the current folder of an empty argument.
Paths = Annotated[list[str], typer.Argument(help="Files and folders.")]


def ingest(
    paths: Paths,
    kind: options.Kind = None,
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", help="Time after which the facts turn STALE, such as P90D or PT12H."),
    ] = None,
    store: options.Store = options.DEFAULT_STORE,
    shared: options.Shared = "",
    residency: options.Residency = "",
    tenant: options.Tenant = "",
    as_json: options.AsJson = False,
) -> None:
    """Put files and folders into the store: all of them, or none when one cannot be read."""
    from crp_integrations.loaders.files import skipped_files

    subject = subject_of(tenant, shared)
    with (
        Relay.open(store, subject=subject, shared=shared, residency=residency) as relay,
        terminal.progress_bar(quiet=as_json) as advance,
    ):
        report = relay.ingest(paths, kind=kind, ttl=ttl, progress=advance)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        terminal.draw_ingestion(report, store, skipped_files(paths))


PACKAGED = "documentation"
IN_CHECKOUT = "docs"
FIRST_PAGE = "main-path.md"


def documentation_path() -> Path:
    """The folder of Markdown pages that the quickstart reads.

    A wheel carries the pages inside the package; an editable install leaves them beside it.
    """
    package = Path(str(files("crp_integrations")))
    for folder in (package / PACKAGED, package.parent / IN_CHECKOUT):
        if (folder / FIRST_PAGE).is_file():
            return folder
    raise ConfigError(
        "the package's documentation is not there; install crp-integrations again from its wheel"
    )


QUESTIONS = (
    "How is the quality tier of an envelope computed?",
    "What happens to a fact that does not fit into the token budget?",
    "When is a claim grounded in the context?",
)
# The pages that say how it works; the whole documentation would take a minute to embed.
PAGES = (
    "audit",
    "cfs",
    "glossary",
    "main-path",
    "quality",
    "relay",
    "selection",
    "tokens",
    "verifier",
    "why",
)
BUDGET_TOKENS = 600
URI_PREFIX = "package:crp-integrations/"
FOLDER_PREFIX = "crp-quickstart-"


def quickstart(
    store: Annotated[
        str | None,
        typer.Option("--store", envvar="CRP_STORE", help="Keep the store here; else temporary."),
    ] = None,
) -> None:
    """Ingest pages of the package's documentation and ask three questions, without any key."""
    if store is not None:
        _run_quickstart(store)
        return
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        _run_quickstart(folder)


def _run_quickstart(store: str) -> None:
    with Relay.open(store) as relay:
        with terminal.progress_bar() as advance:
            report = relay.ingest(
                [documentation_path() / f"{page}.md" for page in PAGES],
                kind=SourceKind.OFFICIAL,
                prefix=URI_PREFIX,
                progress=advance,
            )
        terminal.draw_ingestion(report, store, ())
        for question in QUESTIONS:
            terminal.draw_question(question)
            terminal.draw_answer(relay.ask(question, budget_tokens=BUDGET_TOKENS))
