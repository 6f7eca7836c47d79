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
        number: its place in the session, from 1.
        text: what the model answered, or its verified summary.
        summarised: the text is a summary (CRP-SPEC-004 §12).
        outdated: a source that it rests on has changed since (CRP-SPEC-009 §4.5).
    """

    window_id: str
    number: int
    text: str
    summarised: bool = False
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class System:
    """What is registered about the AI system that answers.

    Spec: CRP-SPEC-005 §14.1
    """

    domain: Domain | None = None
    sector: Sector | None = None
    decides: bool = False
    evidence: tuple[str, ...] = ()


UNREGISTERED: Final = System()
# Name of the passage that the system prompt is.
SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class Dossier:
    """One answer and the context that the model had.

    A lone surrogate, which no hash and no file can hold, is read as U+FFFD; offsets stay.

    Spec: CRP-SPEC-005 §2

    Attributes:
        answer: the model's text, otherwise never altered.
        passages: fact id and text of every fact of the envelope, whole.
        vectors: unit rows of the passages, shape (n, d), in their order; None to embed here.
        grounding: how far the model was allowed to go beyond the context (decision E21).
        importances: importance weight of each passage, [0, 1]; empty when they are not known.
        sub_queries: what the question asks for, as the envelope took it apart (§10.2).
        prior: earlier answers of the session, oldest first (§8.2).
        windows_left: windows that the session may still have (§10.2).
        prompt: the request as the model got it besides the passages, for stage 11; empty for
            the question alone.
        loop_depth: agents within agents around this call (§17).
        no_store: the request forbids to keep what it holds (§13.3).
        conversation: role and text of earlier messages, so that a judge understands the question.
        instructions: system prompt of the call; where facts in it are evidence, it is the last
            passage too, named `system`.
        numbered: the answer's citations count the passages; those of several windows do not.
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
        """The passages that a judge is shown by number; the system prompt has its own name."""
        last = bool(self.passages) and self.passages[-1][0] == SYSTEM
        return self.passages[:-1] if last else self.passages


def _readable(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)
