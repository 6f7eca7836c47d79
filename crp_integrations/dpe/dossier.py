"""The dossier: everything about one answer that the stages read, and nothing else."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crp_integrations.errors import RequestError
from crp_integrations.vectors import FloatRows
from crp_integrations.vocabulary import GroundingMode

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Dossier:
    """One answer and the context that the model had.

    A lone surrogate, which no hash and no file can hold, is read as U+FFFD; offsets stay.

    Spec: CRP-SPEC-005 §2

    Attributes:
        question: as asked, empty when it is not known.
        answer: the model's text, otherwise never altered.
        passages: fact id and text of every fact of the envelope, whole.
        vectors: unit rows of the passages, shape (n, d), in their order; None to embed here.
        grounding: how far the model was allowed to go beyond the context (decision E21).
    """

    question: str
    answer: str
    passages: tuple[tuple[str, str], ...]
    vectors: FloatRows | None = None
    grounding: GroundingMode = GroundingMode.PREFERRED

    def __post_init__(self) -> None:
        object.__setattr__(self, "question", _readable(self.question))
        object.__setattr__(self, "answer", _readable(self.answer))
        object.__setattr__(
            self, "passages", tuple((fact_id, _readable(text)) for fact_id, text in self.passages)
        )
        if self.vectors is not None and len(self.vectors) != len(self.passages):
            raise RequestError(
                f"the dossier has {len(self.vectors)} vectors for {len(self.passages)} passages, "
                "wanted one for each"
            )


def _readable(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)
