"""Receipts with contents written by hand, signed by the package: for what no model would say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crp_integrations.policy.policy_text import parse_policy, policy_hash, render_policy
from crp_integrations.receipt.canonical import dumps
from crp_integrations.receipt.leaves import Leaf, Part
from crp_integrations.receipt.records import Draft, OmissionReason, issue, write
from crp_integrations.receipt.signed_statement import Chain, SigningKey
from crp_integrations.scores import SCALE, to_fixed
from crp_integrations.seals import sha256

KEY = SigningKey(b"a key of the tests, and not secret"[:32])
SALTS = b"salts of the tests, not secret either"[:32]
POLICY = parse_policy("default-src context parametric; halt-on CRITICAL; warn-on MEDIUM")
QUESTION = "How long may a worker be posted, and what must the employer do first?"
FACTS = (
    (
        "Transport workers may be posted for at most 12 months; the posting may be extended once "
        "by six months when the employer gives reasons before the end of the twelfth month."
    ),
    (
        "An employer must notify the authority before the posting begins. A late notification "
        "costs 500 to 2,500 euros for each worker."
    ),
    "Directive 96/71/EC applies to postings between member states.",
    "The notification names the site, the beginning and the expected duration of the posting.",
    *(
        f"Passage {number} of the handbook is about {what}."
        for number, what in enumerate(
            (
                "holidays", "sick pay", "tools of the trade", "housing", "meals on site",
                "the works council", "safety shoes", "night work", "overtime", "travel costs",
                "pensions", "apprentices", "data protection", "parental leave",
            ),
            start=5,
        )
    ),
)  # fmt: skip
# A status for each attribution, so that every kind of claim is drawn.
STATUSES = {
    "CONTEXT_GROUNDED": "SUPPORTED", "UNVERIFIABLE": "CONTRADICTED", "MIXED": "NOT_CHECKED",
    "PARAMETRIC": "UNSUPPORTED", None: "NOT_CHECKABLE",
}  # fmt: skip
ANSWER = (
    "A worker can be posted for 12 months. The employer may extend this once by eight months. "
    "Notifications must be sent before the work begins, and late ones cost money. Most firms use "
    "a consultant for this. Let me know if you need a template."
)


@dataclass
class Sample:
    """What a receipt says, to be changed by a test before it is signed."""

    question: str = QUESTION
    facts: Sequence[str] = FACTS
    answer: str = ANSWER
    included: int = 4
    claims: list[dict[str, Any]] = field(default_factory=list)
    content: dict[str, Any] = field(default_factory=dict)
    source: str = "src_handbook_2026"

    def claim(
        self, text: str, attribution: str | None, *behind: tuple[int, str], **more: Any
    ) -> None:
        """A claim of the answer, and the words of the facts behind it."""
        start = self.answer.index(text)
        self.claims.append(
            {
                "claim_id": f"c{len(self.claims) + 1}",
                "start": start,
                "end": start + len(text),
                "claim_type": "FACTUAL" if attribution else "META",
                "status": STATUSES[attribution],
                "attribution": attribution,
                "checked": "CHECKED" if attribution else "NOT_CHECKABLE",
                "entailment": to_fixed(0.91) if attribution else None,
                "contradiction": to_fixed(0.02) if attribution else None,
                "evidence": [
                    {
                        "fact_id": fact_id(number),
                        "start": self.facts[number].index(words),
                        "end": self.facts[number].index(words) + len(words),
                        "score": to_fixed(0.88),
                        "engine": "tokens",
                    }
                    for number, words in behind
                ],
                "findings": [],
                **more,
            }
        )

    def finding(self, words: str, kind: str, number: int, expected: str) -> list[dict[str, Any]]:
        """A finding about words of the answer, and what a fact says instead."""
        start, there = self.answer.index(words), self.facts[number].index(expected)
        behind = {"fact_id": fact_id(number), "start": there, "end": there + len(expected)}
        return [{"kind": kind, "start": start, "end": start + len(words), "evidence": behind}]

    def leaves(self) -> tuple[Leaf, ...]:
        """Question, facts, context and answer."""
        parts: list[Part] = []
        for number in range(self.included):
            parts += [f"[{number + 1}] ", 1 + number, "\n\n"]
        shown = tuple(range(1, 1 + self.included))
        return (
            Leaf("request", self.question),
            *(
                Leaf(f"fact/{fact_id(number)}", text, fact_id(number), self.source)
                for number, text in enumerate(self.facts)
            ),
            Leaf("context", parts=tuple(parts), of=shown),
            Leaf("answer", self.answer, of=shown),
            Leaf("seal", dumps({"response_hash": sha256(self.answer)}).decode(), of=shown),
        )

    def receipt(self, *, redacted: Sequence[int] = (), erased: Sequence[int] = ()) -> bytes:
        """The file, with the texts of some facts left out."""
        chain = Chain(
            "crp_sess_0123456789abcdef",
            "crp_win_4c1d9e7f",
            3,
            "2026-11-21T23:00:00Z",
            "sha256:" + "c1" * 32,
            ("sha256:" + "b1" * 32, "sha256:" + "b2" * 32),
            "released",
        )
        content = {**_content(self), **self.content}
        made = issue(Draft(content, self.leaves()), chain, KEY, SALTS)
        gone = {1 + number: OmissionReason.REDACTED for number in redacted}
        gone |= {1 + number: OmissionReason.ERASED for number in erased}
        if gone:
            gone[made.number("context")] = OmissionReason.REDACTED
        return write(made.without(gone))


def fact_id(number: int) -> str:
    """An id as the fabric makes them."""
    return f"{number:02d}9f4b7c2e8a6d1350"


def handbook() -> Sample:
    """A receipt with a claim of every kind."""
    sample = Sample()
    sample.claim(
        "A worker can be posted for 12 months.",
        "CONTEXT_GROUNDED",
        (0, "posted for at most 12 months"),
    )
    sample.claim(
        "The employer may extend this once by eight months.",
        "UNVERIFIABLE",
        (0, "the posting may be extended once by six months"),
        entailment=to_fixed(0.08),
        contradiction=to_fixed(0.84),
        findings=sample.finding("eight months", "NUMBER_CHANGED", 0, "six months"),
    )
    sample.claim(
        "Notifications must be sent before the work begins,",
        "CONTEXT_GROUNDED",
        (1, "An employer must notify the authority before the posting begins."),
        (3, "The notification names the site"),
    )
    sample.claim(
        "and late ones cost money.", "MIXED", (1, "A late notification costs 500 to 2,500 euros")
    )
    sample.claim("Most firms use a consultant for this.", "PARAMETRIC", entailment=to_fixed(0.12))
    sample.claim("Let me know if you need a template.", None)
    return sample


def _content(sample: Sample) -> dict[str, Any]:
    count = len(sample.facts)
    tokens = [max(1, len(text) // 4) for text in sample.facts]
    included = range(sample.included)
    used = sum(tokens[: sample.included]) + 12
    return {
        "schema": "receipt-content/1",
        "scale": SCALE,
        "package": {"name": "crp-integrations", "version": "0.1.0"},
        "request": {"question": 0, "grounding": "context-preferred", "strategy": "push"},
        "model": {
            "asked": "openai/gpt-4o-mini",
            "answered": "gpt-4o-mini-2024-07-18",
            "finish_reason": "stop",
            "tokenizer": {"identity": "o200k_base", "exactness": "exact", "source": "litellm"},
            "embedder": "minilm@1",
        },
        "settings": {"digest": "sha256:" + "5e" * 32, "envelope": {}, "dpe": {}},
        "asker": None,
        "documents": [],
        "seal": count + 3,
        # What no page shows.
        "selected": None,
        "fit": None,
        "calls": [],
        "examined": None,
        "candidates": [
            {
                "id": fact_id(number),
                "leaf": 1 + number,
                "characters": len(sample.facts[number]),
                "source": sample.source,
                "relevance": to_fixed(0.92 - 0.04 * number),
                "importance": to_fixed(0.5),
                "tokens": tokens[number],
                "lexical": to_fixed(0.2),
                **({"stale": True} if number == 2 else {}),
            }
            for number in range(count)
        ],
        "envelope": {
            "facts": [
                {
                    "at": number,
                    "position": number + 1,
                    "tokens": tokens[number],
                    "composite": to_fixed(0.81 - 0.05 * number),
                    "freshness": to_fixed(0.99),
                    "diversity": to_fixed(0.3),
                }
                for number in included
            ],
            "dropped": [
                {"at": number, "reason": "duplicate", "kept": 0}
                if number % 3 == 1
                else {"at": number, "reason": "budget"}
                for number in range(sample.included, count)
            ],
            "layout": "position",
            "quality_tier": "B",
            "envelope_score": to_fixed(0.782),
            "coverage_score": to_fixed(0.9),
            "relevance_mean": to_fixed(0.713),
            "saturation": to_fixed(used / (used + 37)),
            "saturation_label": "well-packed",
            "caps": [["B", "completeness 0.640 is below 0.700"]],
            "token_count": used,
            "token_budget": used + 37,
            "facts_available": count,
            "etag": "sha256:" + "e7" * 32,
            "algorithms": ["rank@2", "greedy@3", "position@1"],
        },
        "report": {
            "risk_level": "MEDIUM",
            "composite_score": to_fixed(0.312),
            "grounding_pct": to_fixed(0.4),
            "checked_share": to_fixed(1.0),
            "signals": {
                "grounding": to_fixed(0.6),
                "fidelity": to_fixed(0.25),
                "entailment": to_fixed(0.31),
                "contradiction": to_fixed(0.12),
            },
            "amplifiers_applied": ["distortion"],
            "flags": [],
            "rqa_score": to_fixed(0.744),
            "fidelity_score": to_fixed(0.75),
            "entailment_score": to_fixed(0.69),
            "completeness_score": to_fixed(1.0),
            "flow_score": to_fixed(1.0),
            "repetition_overlap": 0,
            "claims": sample.claims,
            "stages": [[1, "claims", "rules"], [2, "attribution", "minilm"]],
        },
        "policy": {
            "text": render_policy(POLICY),
            "hash": policy_hash(POLICY),
            "judgement": {
                "violations": [],
                "warnings": [
                    {"directive": "warn-on MEDIUM", "seen": "MEDIUM", "wanted": "below MEDIUM"}
                ],
            },
            "decision": "deliver",
            "safety_budget": SCALE,
            "catalogue": "builtin catalogue@1 sha256:" + "ca" * 32,
        },
    }
