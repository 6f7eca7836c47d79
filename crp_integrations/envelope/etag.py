"""The hash of an envelope's set of facts (`etag@1`), and everything else that it depends on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Final

from crp_integrations.records import Record
from crp_integrations.seals import sha256
from crp_integrations.vocabulary import Changed, GroundingMode, Strategy

ETAG = "etag@1"
SALTED_ETAG = "etag-salted@1"


def etag(fact_ids: Iterable[str], salt: str = "") -> str:
    """Hash a set of fact ids; their order has no influence.

    Spec: CRP-SPEC-003 §7.5, §16.2
    """
    ids = sorted(fact_ids)
    plain = "|".join(ids) + "|" + str(len(ids))
    return sha256(f"{salt}|{plain}" if salt else plain)


class Validators(Record):
    """Everything that an envelope depends on, as hashes and numbers; no text is in it.

    Spec: CRP-SPEC-003 §11.3 (decision E12)

    Attributes:
        state_hash: of every namespace read, the region's own and the shared ones.
        readable: how many facts the subject may retrieve; it shows a guard that decides anew.
        decomposition: hash of the question and its information needs, in their order.
        embedder: identity of the embedder.
        model: the model packed for.
        tokenizer: identity of its counter.
        budget_tokens: tokens that the envelope may have.
        automatic: it takes what the question needs of them.
        settings_digest: hash of every setting: weights, packing, ordering, thresholds.
        policy: digest of the policy in force, with the guard that decides about access.
        k: cap on the number of facts, None for no cap.
        max_age_seconds: age above which facts count as stale, None for no such age.
        packing, layout: names of the algorithms in force.
        prompt: hash of what stands around the envelope in the prompt, and of what is asked of
            the model: an earlier answer holds for these alone.
        prior: hash of the session's earlier windows, empty without any.
        judge: hash of the judge and of how it is asked, empty without one: its word on an earlier
            answer is not another's.
    """

    SCHEMA = "validators/1"

    state_hash: str
    readable: int
    decomposition: str
    embedder: str
    model: str
    tokenizer: str
    budget_tokens: int
    settings_digest: str
    grounding: GroundingMode
    strategy: Strategy
    policy: str = ""
    k: int | None = None
    max_age_seconds: int | None = None
    packing: str = ""
    layout: str = ""
    prompt: str = ""
    prior: str = ""
    automatic: bool = False
    judge: str = ""

    def reasons(self, earlier: Validators) -> tuple[Changed, ...]:
        """What differs from an earlier envelope's validators; empty when nothing does."""
        changed = (
            word for field, word in WORDS.items() if getattr(self, field) != getattr(earlier, field)
        )
        return tuple(dict.fromkeys(changed))

    def selects_like(self, earlier: Validators) -> bool:
        """Whether Phase 1 would select the same candidates again.

        Spec: CRP-SPEC-003 §5.3
        """
        return not SELECT.intersection(self.reasons(earlier))


# Field → the word for its change, in the order in which changes are told.
WORDS: Final = MappingProxyType(
    {
        "state_hash": Changed.FACTS,
        "readable": Changed.ACCESS,
        "decomposition": Changed.DECOMPOSITION,
        "embedder": Changed.EMBEDDER,
        "model": Changed.MODEL,
        "tokenizer": Changed.TOKENIZER,
        "budget_tokens": Changed.BUDGET,
        "automatic": Changed.BUDGET,
        "settings_digest": Changed.SETTINGS,
        "grounding": Changed.GROUNDING,
        "strategy": Changed.STRATEGY,
        "policy": Changed.POLICY,
        "k": Changed.K,
        "max_age_seconds": Changed.MAX_AGE,
        "packing": Changed.PACKING,
        "layout": Changed.LAYOUT,
        "prompt": Changed.PROMPT,
        "prior": Changed.PRIOR,
        "judge": Changed.JUDGE,
    }
)
# What Phase 1 depends on; earlier windows name deferred facts that are read as well.
SELECT: Final = frozenset(
    {
        Changed.FACTS,
        Changed.ACCESS,
        Changed.DECOMPOSITION,
        Changed.EMBEDDER,
        Changed.SETTINGS,
        Changed.POLICY,
        Changed.PRIOR,
    }
)


def decomposition_hash(query: str, sub_queries: Sequence[str]) -> str:
    """`sha256:` hash of a question and what it was decomposed into."""
    return sha256(json.dumps([query, *sub_queries]))
