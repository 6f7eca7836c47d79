"""`python -m tests.bench.distortions`: cases out of documents, what is found in them, the figures."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import COMPARISON, Finding, Report
from crp_integrations.dpe.settings import LEVEL_CUTS, DpeSettings
from crp_integrations.errors import CRPError
from crp_integrations.ports import Embedder
from crp_integrations.relay.defaults import default_verifier
from crp_integrations.vocabulary import DistortionType
from tests.bench.distortions.amounts import date, magnitude, number, unit
from tests.bench.distortions.names import entity, pool_of, role
from tests.bench.distortions.sense import condition, negation
from tests.bench.distortions.text import (
    CLEAN,
    DISTORTED,
    KINDS,
    Case,
    Document,
    Edit,
    Maker,
    Pool,
    Sentence,
    passages,
    read,
)
from tests.bench.distortions.wording import addition, paraphrase, reformatted, verbatim
from tests.bench.measure import has_one_thread, in_one_thread, machine

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


CUT = min(cut for cut, _ in LEVEL_CUTS)
# What a finding may be called for each kind; what the document's types do not tell apart is named
# by the nearest.
NAMED = {
    **{str(kind): {str(kind)} for kind in DistortionType},
    "MAGNITUDE_ALTERED": {"MAGNITUDE_ALTERED", "NUMBER_CHANGED"},
    "UNIT_CHANGED": {"NUMBER_CHANGED", "MAGNITUDE_ALTERED", "UNIT_CHANGED"},
    "ROLE_SWAPPED": {
        "ROLE_SWAPPED", "ENTITY_SUBSTITUTED", "NUMBER_CHANGED", "DATE_SHIFTED", "contradiction",
    },
    "UNSUPPORTED_ADDITION": {"fabrication"},
}  # fmt: skip
# Recall at least, false alarms at most: of the findings, and of the risk as well.
TARGETS = {
    **dict.fromkeys(("NUMBER_CHANGED", "DATE_SHIFTED", "UNIT_CHANGED", "NEGATION_FLIP"), 0.95),
    **dict.fromkeys(("ENTITY_SUBSTITUTED", "CONTEXT_STRIPPED"), 0.85),
    "verbatim": 0.01,
    "reformatted": 0.01,
    "paraphrase": 0.10,
}
# Characters around an edit: the engine may name the word beside it ("not" and its verb).
NEAR = 12


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found in one case.

    Attributes:
        at: a finding of stage 3 lies at the edit, or anywhere for clean cases.
        named: one of these bears the right name.
        flagged: the risk is MEDIUM or above.
        kinds: of all findings, in order.
    """

    case: Case
    at: bool
    named: bool
    flagged: bool
    risk: float
    kinds: tuple[str, ...]


def report_on(
    case: Case, embedder: Embedder | None, verifier: Verifier, settings: DpeSettings
) -> Report:
    """The engine's report on a claim as an answer, its facts as the envelope."""
    facts = tuple((f"fact-{number}", text) for number, text in enumerate(case.facts, 1))
    dossier = Dossier("", case.claim, facts)
    return examine(dossier, embedder=embedder, verifier=verifier, settings=settings)


def seen(case: Case, report: Report) -> Seen:
    """What of a report concerns the edit."""
    findings = [one for one in report.findings if one.stage == 3]
    mine = [one for one in findings if _at(one, case)] if case.kind in DISTORTED else findings
    names = NAMED.get(case.kind, set())
    return Seen(
        case,
        at=bool(mine),
        named=any(one.kind in names for one in mine),
        flagged=report.composite_score >= CUT,
        risk=report.composite_score,
        kinds=tuple(one.kind for one in findings),
    )


def _at(finding: Finding, case: Case) -> bool:
    return finding.start < case.end + NEAR and finding.end > case.start - NEAR


def run(
    cases: Sequence[Case],
    embedder: Embedder | None,
    verifier: Verifier,
    settings: DpeSettings,
    say: Callable[[str], None],
) -> tuple[list[Seen], float]:
    """What was found in each case, and processor milliseconds a case."""
    before = time.process_time()
    found = []
    for done, case in enumerate(cases, 1):
        found.append(seen(case, report_on(case, embedder, verifier, settings)))
        if done % 500 == 0:
            say(f"{done} of {len(cases)} cases")
    return found, 1000 * (time.process_time() - before) / max(1, len(cases))


def figures(found: Iterable[Seen]) -> dict[str, Any]:
    """For each kind the shares, for each of its rules too, and whether the target is met.

    `found` is recall at the edit for distorted cases and the share with a false finding for clean
    ones; `flagged` the share at MEDIUM or above; `either` of the two; `named` the share named
    rightly.
    """
    seen_ = list(found)
    results: dict[str, Any] = {}
    for kind in (*DISTORTED, *CLEAN):
        rows = [one for one in seen_ if one.case.kind == kind]
        if not rows:
            continue
        share = _shares(rows, clean=kind in CLEAN)
        target = TARGETS.get(kind)
        if target is not None:
            share["target"] = target
            share["met"] = (
                share["either"] <= target
                if kind in CLEAN
                else min(share["found"], share["flagged"]) >= target
            )
        share["rules"] = {
            rule: _shares([one for one in rows if one.case.rule == rule], clean=kind in CLEAN)
            for rule in sorted({one.case.rule for one in rows})
        }
        share["kinds_reported"] = dict(Counter(name for one in rows for name in one.kinds))
        results[kind] = share
    clean = [one for one in seen_ if one.case.kind in ("verbatim", "reformatted")]
    if clean:
        share = _shares(clean, clean=True)
        target = TARGETS["verbatim"]
        results["verbatim+reformatted"] = {
            **share,
            "target": target,
            "met": share["either"] <= target,
        }
    return results


def _shares(rows: Sequence[Seen], *, clean: bool) -> dict[str, Any]:
    count = len(rows)
    shares: dict[str, Any] = {
        "cases": count,
        "found": round(sum(one.at for one in rows) / count, 4),
        "flagged": round(sum(one.flagged for one in rows) / count, 4),
        "either": round(sum(one.at or one.flagged for one in rows) / count, 4),
    }
    if not clean:
        shares["named"] = round(sum(one.named for one in rows) / count, 4)
    return shares


MODULE = "tests.bench.distortions"
COLUMNS = ("cases", "found", "named", "flagged", "either", "target", "met")


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of sets; without, what this Python holds")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--part", choices=("tune", "held"), default="tune")
    parser.add_argument("--kinds", default="", help="names, with commas between; default all")
    parser.add_argument("--most", type=int, help="at most so many cases of a kind")
    parser.add_argument("--cases", type=Path, help="where to write each case and what was found")
    parser.add_argument("--lexical", action="store_true", help="without the embedder")
    given = parser.parse_args(arguments)
    if not has_one_thread():
        sys.exit(in_one_thread(MODULE, sys.argv[1:] if arguments is None else arguments))
    try:
        report = _measure(given)
    except (CRPError, OSError) as error:
        sys.exit(f"crp: {error}")
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    show(report)


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    cases = make(read(given.data), given.part)
    told = digest(cases)
    made = Counter(case.kind for case in cases)
    sources = Counter(case.source for case in cases)
    chosen = _chosen(cases, given.kinds, given.most)
    if given.lexical:
        embedder, settings = None, DpeSettings()
    else:
        from crp_integrations.engines.onnx import OnnxEmbedder

        embedder, settings = OnnxEmbedder(), DpeSettings()
    verifier = default_verifier()
    found, spent = run(chosen, embedder, verifier, settings, _say)
    # The cases of the held part are for scoring, not for reading.
    if given.cases and given.part == "tune":
        rows = [
            {**asdict(one.case), "at": one.at, "flagged": one.flagged, "risk": round(one.risk, 4),
             "reported": one.kinds}
            for one in found
        ]  # fmt: skip
        given.cases.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
    return {
        "generator": GENERATOR,
        "digest": told,
        "part": given.part,
        "made": dict(made),
        "total": len(cases),
        "sources": dict(sources),
        "verifier": COMPARISON if verifier is None else verifier.identity,
        "settings": settings.model_dump(mode="json"),
        "cpu_ms": round(spent, 2),
        "machine": machine(),
        "results": figures(found),
    }


def _chosen(cases: Sequence[Case], kinds: str, most: int | None) -> list[Case]:
    wanted = [name.strip() for name in kinds.split(",") if name.strip()] or list(KINDS)
    unknown = [name for name in wanted if name not in KINDS]
    if unknown:
        from crp_integrations.errors import RequestError

        raise RequestError(f"--kinds has {unknown[0]!r:.40}, wanted some of {', '.join(KINDS)}")
    return [
        case
        for kind in wanted
        for case in [one for one in cases if one.kind == kind][: most or len(cases)]
    ]


def show(report: dict[str, Any]) -> None:
    """Print the figures as a table."""
    print(
        f"{report['generator']}, part {report['part']}: {report['total']} cases, "
        f"digest {report['digest']}, {report['cpu_ms']} ms a case, {report['verifier']}"
    )
    print(f"{'kind':24}" + "".join(f"{name:>9}" for name in COLUMNS))
    for kind, row in report["results"].items():
        cells = []
        for name in COLUMNS:
            value = row.get(name, "")
            cells.append(f"{value:9.3f}" if isinstance(value, float) else f"{value!s:>9}")
        word = " (false alarms)" if kind in CLEAN else ""
        print(f"{kind:24}" + "".join(cells) + word)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
