"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crp_integrations.vocabulary import GroundingMode, SourceKind

DEFAULT_STORE = Path("crp-store")

Store = Annotated[
    Path,
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
    int | None,
    typer.Option("--budget-tokens", min=1, help="Most tokens that the context may take."),
]
Grounding = Annotated[
    GroundingMode,
    typer.Option("--grounding", help="How far the model may go beyond the context."),
]
Session = Annotated[
    str | None,
    typer.Option("--session", envvar="CRP_SESSION", help="Session id, crp_sess_ and 16 to 32."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
