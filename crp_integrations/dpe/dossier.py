"""The dossier: everything about one answer that the stages read, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from crp_integrations.dpe.records import RejectedClaim
from crp_integrations.errors import RequestError
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import Domain, GroundingMode, Sector

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PriorWindow:
    """An earlier answer of the same session.

    Spec: CRP-SPEC-005 §8.2

    Attributes:
        number: its position in the session, from 1.
        text: the model's answer, or a verified summary of it.
        summarised: True if the text is a summary (CRP-SPEC-004 §12).
        outdated: True if a source of the answer has changed since (CRP-SPEC-009 §4.5).
    """

    window_id: str
    number: int
    text: str
    summarised: bool = False
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class System:
    """The registration of the AI system that answers.

    Spec: CRP-SPEC-005 §14.1
    """

    domain: Domain | None = None
    sector: Sector | None = None
    decides: bool = False
    evidence: tuple[str, ...] = ()


UNREGISTERED: Final = System()
# Name of the passage that contains the system prompt.
SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class Dossier:
    """One answer and the context that the model had.

    Lone surrogates, which cannot be encoded, are replaced with U+FFFD; offsets stay the same.

    Spec: CRP-SPEC-005 §2

    Attributes:
        answer: the model's text, otherwise never altered.
        passages: fact id and full text of every fact of the envelope.
        vectors: unit row vectors of the passages in order, shape (n, d); None to embed here.
        grounding: how far the model was allowed to go beyond the context (decision E21).
        importances: importance weight of each passage, [0, 1]; empty when they are not known.
        sub_queries: the parts into which the envelope split the question (§10.2).
        prior: earlier answers of the session, oldest first (§8.2).
        windows_left: number of windows that the session may still have (§10.2).
        prompt: the request without the passages, for stage 11; empty if it is the question alone.
        loop_depth: nesting depth of agents around this call (§17).
        no_store: True if the request forbids storing its content (§13.3).
        conversation: role and text of earlier messages, so that a judge understands the question.
        instructions: system prompt of the call; if its facts count as evidence, it is also the
            last passage, named `system`.
        numbered: True if citations in the answer are passage numbers; False over several windows.
        rejected: claims that the reports on sub-agents' answers flag.
    """

    question: str
    answer: str
    passages: tuple[tuple[str, str], ...]
    vectors: FloatRows | None = None
    grounding: GroundingMode = GroundingMode.PREFERRED
    importances: tuple[float, ...] = ()
    sub_queries: tuple[str, ...] = ()
    prior: tuple[PriorWindow, ...] = ()
    windows_left: int = 0
    prompt: str = ""
    system: System = UNREGISTERED
    loop_depth: int = 0
    no_store: bool = False
    conversation: tuple[tuple[str, str], ...] = ()
    instructions: str = ""
    numbered: bool = True
    rejected: tuple[RejectedClaim, ...] = ()

    def __post_init__(self) -> None:
        read: dict[str, object] = {
            name: _readable(getattr(self, name))
            for name in ("question", "answer", "prompt", "instructions")
        }
        for name in ("passages", "conversation"):
            read[name] = tuple((key, _readable(text)) for key, text in getattr(self, name))
        read["sub_queries"] = tuple(map(_readable, self.sub_queries))
        read["prior"] = tuple(replace(window, text=_readable(window.text)) for window in self.prior)
        for name, value in read.items():
            object.__setattr__(self, name, value)
        if self.importances and len(self.importances) != len(self.passages):
            raise RequestError(
                f"the dossier has {len(self.importances)} importances for {len(self.passages)} "
                "passages, wanted one for each or none"
            )
        if self.vectors is not None and len(self.vectors) != len(self.passages):
            raise RequestError(
                f"the dossier has {len(self.vectors)} vectors for {len(self.passages)} passages, "
                "wanted one for each"
            )

    @property
    def numbered_passages(self) -> tuple[tuple[str, str], ...]:
        """The passages that a judge sees by number: all but the system prompt."""
        last = bool(self.passages) and self.passages[-1][0] == SYSTEM
        return self.passages[:-1] if last else self.passages


def _readable(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)
