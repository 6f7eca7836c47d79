"""Claims of an answer compared with passages, for the tests of the exact comparison."""

from __future__ import annotations

from collections.abc import Sequence

from crp_integrations.dpe.comparison import compare_claims
from crp_integrations.dpe.records import Claim
from crp_integrations.language.claims import segment
from crp_integrations.vocabulary import Checked


def claims_of(answer: str) -> list[Claim]:
    """The claims of an answer before anything is known of them."""
    return [
        Claim(
            claim_id=f"c{number}", text=answer[piece.start : piece.end], start=piece.start,
            end=piece.end, reads_as=piece.read(answer), sentence_index=piece.sentence_index,
            claim_type=piece.claim_type, specificity=piece.specificity, checked=Checked.CHECKED,
        )
        for number, piece in enumerate(segment(answer), 1)
    ]  # fmt: skip


def compared(
    answer: str, passages: Sequence[str], question: str = "", *, numbered: bool = True
) -> tuple[Claim, ...]:
    """The claims as the exact comparison leaves them."""
    texts = [(f"p{number}", text) for number, text in enumerate(passages, 1)]
    return compare_claims(answer, claims_of(answer), texts, question, numbered=numbered)


def statuses(answer: str, passages: Sequence[str], question: str = "") -> list[str]:
    """The status of each claim."""
    return [claim.status.value for claim in compared(answer, passages, question)]
