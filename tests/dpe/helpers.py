"""A short way to examine an answer in tests."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Finding, Report
from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.dpe.verifier.alignment import AlignmentVerifier
from crp_integrations.ports import Embedder, Tracer
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import GroundingMode
from tests.doubles import HashEmbedder

LITERAL = DpeSettings.preset("literal")


def check(
    answer: str,
    context: Sequence[str],
    *,
    question: str = "",
    embedder: Embedder | None = None,
    verifier: Verifier | None = None,
    settings: DpeSettings | None = None,
    grounding: GroundingMode = GroundingMode.PREFERRED,
    vectors: FloatRows | None = None,
    tracer: Tracer | None = None,
) -> Report:
    """Examine an answer; facts are named `f1`, `f2`, …."""
    passages = tuple((f"f{number}", text) for number, text in enumerate(context, 1))
    return examine(
        Dossier(question, answer, passages, vectors, grounding),
        embedder=embedder,
        verifier=verifier,
        settings=settings or DpeSettings(),
        tracer=tracer,
    )


def check_literally(
    answer: str,
    context: Sequence[str],
    *,
    embedder: Embedder | None = None,
    verifier: Verifier | None = None,
    settings: DpeSettings = LITERAL,
    question: str = "",
    grounding: GroundingMode = GroundingMode.PREFERRED,
    vectors: FloatRows | None = None,
) -> Report:
    """Examine an answer by the document's own arithmetic."""
    return check(
        answer,
        context,
        question=question,
        embedder=embedder or HashEmbedder(),
        verifier=verifier or AlignmentVerifier(),
        settings=settings,
        grounding=grounding,
        vectors=vectors,
    )


def literal(**changes: object) -> DpeSettings:
    """The preset `literal` with other values."""
    return DpeSettings.model_validate({**dict(LITERAL), **changes})


def kinds(report: Report) -> list[str]:
    """The kinds of all findings in order."""
    return [finding.kind for finding in report.findings]


def only(report: Report) -> Finding:
    """The single finding of a report."""
    assert len(report.findings) == 1, kinds(report)
    return report.findings[0]
