"""What each role does. A role sees what it is handed, and nothing else of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from crp_integrations.governance.exposure import Snippet
from crp_integrations.governance.roles.records import Draft, Material, Plan, Verdict, Watch
from crp_integrations.governance.state import RuntimeState


class Planner(Protocol):
    """Decomposes goals. It sees the question and the exposed fields."""

    def plan(self, question: str, state: RuntimeState) -> Plan:
        """The goals that a question comes to."""
        ...


class Retriever(Protocol):
    """Fetches by keyword, vector and graph, under the subject's guard."""

    def retrieve(self, plan: Plan, state: RuntimeState) -> Material:
        """A pack for a plan, with its texts.

        Raises:
            AccessDenied: the guard lets nothing of it be read.
        """
        ...


class Compactor(Protocol):
    """Trims a pack to its budget with a report of everything that it leaves out."""

    def compact(self, plan: Plan, material: Material) -> Material:
        """The pack within its budget.

        Raises:
            CompactionRefused: the result does not account for what it left out.
        """
        ...


class Synthesizer(Protocol):
    """Writes the response. It sees the payload: exposed fields, sanitised snippets, handles."""

    def write(self, plan: Plan, state: RuntimeState, snippets: Sequence[Snippet]) -> Draft:
        """An answer with citations.

        Raises:
            ModelError: the model could not be called.
        """
        ...


class Verifier(Protocol):
    """Checks policy and provenance of what was shown, and the citations of what was written."""

    def verify(
        self, before: Material, shown: Material, snippets: Sequence[Snippet], draft: Draft
    ) -> Verdict:
        """Look at a draft.

        Args:
            before: as it was retrieved.
            shown: as it was compacted.
        """
        ...


class Sentinel(Protocol):
    """Detects anomalies and context rot."""

    def watch(self, material: Material, draft: Draft | None, verdict: Verdict | None) -> Watch:
        """Look at a run.

        Args:
            draft, verdict: None before the model was asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Roles:
    """Who plays which role in a run."""

    planner: Planner
    retriever: Retriever
    compactor: Compactor
    synthesizer: Synthesizer
    verifier: Verifier
    sentinel: Sentinel

    def but(self, **played: Any) -> Roles:
        """The same with some roles played by others."""
        return replace(self, **played)
