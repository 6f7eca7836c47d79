"""A short way to examine an answer that continues earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.dpe.dossier import Dossier, PriorWindow
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.ports import Embedder
from tests.doubles import HashEmbedder


def after(
    answer: str,
    *prior: str | PriorWindow,
    sub_queries: Sequence[str] = (),
    embedder: Embedder | None = None,
    verifier: Verifier | None = None,
    settings: DpeSettings | None = None,
    context: Sequence[str] = (),
    windows_left: int = 0,
) -> Report:
    """The report on an answer after earlier answers; those are windows `w1`, `w2`, …."""
    windows = tuple(
        PriorWindow(f"w{number}", number, window) if isinstance(window, str) else window
        for number, window in enumerate(prior, 1)
    )
    if settings is not None and settings.decides == "composite":
        verifier, embedder = verifier or AlignmentVerifier(), embedder or HashEmbedder()
    return examine(
        Dossier(
            "",
            answer,
            tuple((f"f{number}", text) for number, text in enumerate(context, 1)),
            sub_queries=tuple(sub_queries),
            prior=windows,
            windows_left=windows_left,
        ),
        embedder=embedder,
        verifier=verifier,
        settings=settings or DpeSettings(),
    )
