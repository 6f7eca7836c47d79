"""Cases out of documents: the makers, how many of each kind, which part, and the digest."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from random import Random

from tests.bench.distortions.addition import addition
from tests.bench.distortions.amounts import magnitude, number, unit
from tests.bench.distortions.case import KINDS, Case, Edit, Maker, Pool, Sentence
from tests.bench.distortions.conditions import condition
from tests.bench.distortions.dates import date
from tests.bench.distortions.names import entity, pool_of
from tests.bench.distortions.phrasing import paraphrase
from tests.bench.distortions.reformat import reformatted, verbatim
from tests.bench.distortions.roles import role
from tests.bench.distortions.sense import negation
from tests.bench.distortions.text import Document, passages

# Frozen: other cases mean another number.
GENERATOR = "distortions@1"
MAKERS: dict[str, Maker] = {
    "NUMBER_CHANGED": number,
    "DATE_SHIFTED": date,
    "NEGATION_FLIP": negation,
    "ENTITY_SUBSTITUTED": entity,
    "CONTEXT_STRIPPED": condition,
    "MAGNITUDE_ALTERED": magnitude,
    "UNIT_CHANGED": unit,
    "ROLE_SWAPPED": role,
    "UNSUPPORTED_ADDITION": addition,
    "verbatim": verbatim,
    "reformatted": reformatted,
    "paraphrase": paraphrase,
}
# Cases of a kind and part, and of a kind out of one document, at most.
MOST = {**dict.fromkeys(KINDS, 160), "verbatim": 220, "reformatted": 280, "paraphrase": 280}
OF_ONE = 3
# A document as long as a book may give more.
OF_MANY = 40
LONG = 50_000
# From so many sentences on a passage is shown as two facts.
TWO_FACTS = 5


def make(documents: Iterable[Document], part: str) -> list[Case]:
    """The cases of a part, by kind, then by a hash of their place."""
    mine = [document for document in documents if document.part == part]
    pool = pool_of(document.text for document in mine)
    found: dict[str, list[tuple[str, Case]]] = {kind: [] for kind in KINDS}
    for document in mine:
        for kind, key, case in _of(document, pool):
            found[kind].append((key, case))
    chosen = []
    for kind in KINDS:
        chosen += _spread(
            [case for _, case in sorted(found[kind], key=lambda one: one[0])], MOST[kind]
        )
    return chosen


def digest(cases: Sequence[Case]) -> str:
    """SHA-256 over the cases, sixteen hexadecimal digits."""
    rows = json.dumps([asdict(case) for case in cases], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def _of(document: Document, pool: Pool) -> Iterator[tuple[str, str, Case]]:
    most = OF_MANY if len(document.text) > LONG else OF_ONE
    given: Counter[str] = Counter()
    for place, sentence in enumerate(passages(document)):
        for kind, maker in MAKERS.items():
            if given[kind] >= most:
                continue
            seed = f"{GENERATOR}/{kind}/{document.digest}/{place}"
            edit = maker(sentence, Random(seed), pool)
            if edit is None or (kind not in ("verbatim",) and edit.claim == sentence.text):
                continue
            given[kind] += 1
            key = hashlib.sha256(seed.encode()).hexdigest()
            yield kind, key, _case(kind, key, document, sentence, edit)


def _case(kind: str, key: str, document: Document, sentence: Sentence, edit: Edit) -> Case:
    half = len(sentence.passage) // 2
    facts = (
        (" ".join(sentence.passage[:half]), " ".join(sentence.passage[half:]))
        if len(sentence.passage) >= TWO_FACTS
        else (sentence.evidence,)
    )
    return Case(
        case_id=key[:12],
        kind=kind,
        rule=edit.rule,
        source=document.source,
        document=document.name,
        facts=facts,
        claim=edit.claim,
        start=edit.start,
        end=edit.end,
        expected=edit.expected,
    )


def _spread(cases: list[Case], most: int) -> list[Case]:
    """At most so many, no rule more than its share while others have cases left."""
    by_rule: dict[str, list[Case]] = {}
    seen: set[str] = set()
    for case in cases:
        words = case.claim.lower().split()
        # Documentation says the same of many functions.
        key = " ".join((*words[:4], *words[-3:]))
        if key not in seen:
            seen.add(key)
            by_rule.setdefault(case.rule, []).append(case)
    kept: list[Case] = []
    while len(kept) < most and any(by_rule.values()):
        for rule in sorted(by_rule):
            # Names of rules in turn; the larger heaps give two a turn.
            for _ in range(2 if len(by_rule[rule]) > 40 else 1):
                if by_rule[rule] and len(kept) < most:
                    kept.append(by_rule[rule].pop(0))
    return kept
