"""`crp quickstart`: the whole path once, on the package's own documentation."""

from __future__ import annotations

import tempfile
from typing import Annotated

import typer

from crp_integrations import Relay
from crp_integrations.cli import show
from crp_integrations.cli.documentation import documentation_path
from crp_integrations.vocabulary import SourceKind

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
        _run(store)
        return
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        _run(folder)


def _run(store: str) -> None:
    with Relay.open(store) as relay:
        with show.progress() as advance:
            report = relay.ingest(
                [documentation_path() / f"{page}.md" for page in PAGES],
                kind=SourceKind.OFFICIAL,
                prefix=URI_PREFIX,
                progress=advance,
            )
        show.ingested(report, store, ())
        for question in QUESTIONS:
            show.question(question)
            show.answer(relay.ask(question, budget_tokens=BUDGET_TOKENS))
