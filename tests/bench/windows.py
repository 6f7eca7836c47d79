"""How well stages 6, 7 and 9 tell coherent windows from broken ones.

Long documents are cut into windows of some paragraphs: three earlier answers and a present one.
Against them stand the same with one thing broken: the window of another document (flow), sentences
said before (repetition), an earlier sentence said again with another value or negation
(coherence), a sub-query without its answer (completeness).

    python -m tests.bench.windows --data DIR --json OUT
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from crp_integrations.dpe.dossier import Dossier, PriorWindow
from crp_integrations.dpe.pipeline import examine
from crp_integrations.dpe.ports import Verifier
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.settings import DpeSettings, QualitySettings
from crp_integrations.engines.onnx import OnnxEmbedder
from crp_integrations.errors import CRPError
from crp_integrations.ports import Embedder
from crp_integrations.relay.defaults import default_verifier
from tests.bench.distortions.amounts import date, number
from tests.bench.distortions.sense import negation
from tests.bench.distortions.text import Document, Maker, Pool, Sentence, is_prose, read, sentences
from tests.bench.distortions.wording import paraphrase
from tests.bench.measure import has_one_thread, in_one_thread, machine
from tests.bench.verifier_systems import auroc

GENERATOR = "windows@1"
# Words of a window at least, and windows before the present one.
WORDS = 90
PRIOR = 3
# Sessions of one document at most: a book would give all of them.
OF_ONE = 12
# Sub-queries of a session; so many stay without an answer where it is broken.
NEEDS = 4
UNMET = 2
_VALUES: tuple[Maker, ...] = (number, date, negation)
_ARTICLE = re.compile(r"\n(?=PMID: )")


@dataclass(frozen=True, slots=True)
class Session:
    """Earlier answers and a present one.

    Attributes:
        kind: `coherent`, `restated`, `shuffled`, `repeated`, `contradicted`, `complete` or
            `truncated`.
        rule: how it was broken, such as `far` or `negation`.
        facts: the envelope of the present answer.
    """

    key: str
    kind: str
    rule: str
    prior: tuple[str, ...]
    answer: str
    facts: tuple[str, ...]
    sub_queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive windows of one document."""

    key: str
    windows: tuple[str, ...]


def windows(text: str) -> list[str]:
    """The prose of a document in windows of whole paragraphs."""
    found: list[str] = []
    held: list[str] = []
    count = 0
    for line in text.split("\n"):
        pieces = sentences(line)
        good = [one for one in pieces if is_prose(one)]
        # A paragraph whose sentences are mostly no prose is a table, a list or a reference.
        if not good or 2 * len(good) < len(pieces):
            continue
        held.append(line.strip())
        count += len(line.split())
        if count >= WORDS and (len(held) > 1 or count >= 2 * WORDS):
            found.append("\n\n".join(held))
            held, count = [], 0
    return found


def articles(documents: Sequence[Document]) -> list[Document]:
    """The documents, each article of a collection on its own, so that parts share none."""
    return [
        Document(one.source, f"{one.name}/{place}", one.title, text)
        for one in documents
        for place, text in enumerate(_ARTICLE.split(one.text))
    ]


def stretches(documents: Sequence[Document]) -> list[Stretch]:
    """Runs of windows, `PRIOR` before and one present, that do not overlap."""
    found = []
    size = PRIOR + 1
    for document in documents:
        cut = windows(document.text)
        for run in range(min(OF_ONE, len(cut) // size)):
            key = f"{document.digest}/{run}"
            found.append(Stretch(key, tuple(cut[run * size : (run + 1) * size])))
    return found


def sessions(documents: Sequence[Document], most: int) -> list[Session]:
    """At most so many coherent sessions, each with its broken counterparts."""
    order = Random(f"{GENERATOR}/order")
    found = stretches(documents)
    order.shuffle(found)
    made: list[Session] = []
    for place, stretch in enumerate(found[:most]):
        other = found[(place + len(found) // 2) % len(found)]
        made += _broken(stretch, other)
    titled = [one for one in documents if one.title and _need(one)]
    order.shuffle(titled)
    for start in range(0, min(len(titled) - NEEDS + 1, most * NEEDS), NEEDS):
        made += _needs(titled[start : start + NEEDS])
    return made


def _broken(stretch: Stretch, other: Stretch) -> Iterator[Session]:
    *before, answer = stretch.windows
    prior = tuple(before)
    draw = Random(f"{GENERATOR}/{stretch.key}")

    def session(kind: str, rule: str, text: str) -> Session:
        facts = tuple(text.split("\n\n"))
        return Session(stretch.key, kind, rule, prior, text, facts)

    yield session("coherent", "next", answer)
    if other.key.split("/")[0] != stretch.key.split("/")[0]:
        yield session("shuffled", "other_document", other.windows[-1])
    said = [one for text in prior for line in text.split("\n") for one in sentences(line)]
    prose = [one for one in said if is_prose(one)]
    own = sentences(answer.replace("\n\n", " "))
    half = max(2, len(own) // 2)
    if len(prose) >= half:
        again = draw.sample(prose, half)
        yield session("repeated", "verbatim", " ".join((*own[: len(own) - half], *again)))
        nearly = [_nearly(one, draw) for one in again]
        yield session("repeated", "nearly", " ".join((*own[: len(own) - half], *nearly)))
    yield from _contradicted(stretch, prose, own, draw)


def _nearly(text: str, draw: Random) -> str:
    """The sentence in nearly the same words."""
    edit = paraphrase(Sentence("", text, (text,)), draw, Pool())
    if edit is not None:
        return edit.claim
    lead = draw.choice(("As said, ", "Again, ", "In short, "))
    return lead + text


def _contradicted(
    stretch: Stretch, prose: list[str], own: list[str], draw: Random
) -> Iterator[Session]:
    """An earlier sentence said again in the present window, as it was and with one change."""
    *prior, _ = stretch.windows
    evidence = " ".join(prior)
    makers = list(_VALUES)
    draw.shuffle(makers)
    for maker in makers:
        for text in draw.sample(prose, len(prose)):
            edit = maker(Sentence("", text, (evidence,)), draw, Pool())
            if edit is None:
                continue
            at = draw.randrange(1, len(own)) if len(own) > 1 else 0
            for kind, claim in (("restated", text), ("contradicted", edit.claim)):
                answer = " ".join((*own[:at], claim, *own[at:]))
                facts = (" ".join(own), text)
                yield Session(stretch.key, kind, maker.__name__, tuple(prior), answer, facts)
            return


_QUESTIONS = (
    (re.compile(r"\(born "), "When was {} born?"),
    (re.compile(r"\b(?:is|was) (?:located|situated) (?:in|on|at)\b"), "Where is {} located?"),
    (re.compile(r"\b(?:was|were) (?:founded|established) (?:in|by)\b"), "How was {} founded?"),
    (re.compile(r"\bdirected by\b"), "Who directed {}?"),
    (re.compile(r"\bwritten by\b"), "Who wrote {}?"),
    (re.compile(r"\b(?:is|was|are|were) (?:an?|the)\b"), "What is {}?"),
)
_NOTHING = (
    "There is no information about {}.",
    "The sources say nothing about {}.",
    "More on {} will follow.",
)


def _need(document: Document) -> str:
    """A question that the first sentence of a document answers, empty for none."""
    found = sentences(document.text)
    title = re.sub(r" \(.*\)$", "", document.title)
    if len(found) < 2 or title not in found[0] or len(document.text) > 1_500:
        return ""
    return next((ask.format(title) for told, ask in _QUESTIONS if told.search(found[0])), "")


def _needs(documents: Sequence[Document]) -> Iterator[Session]:
    """A session that answers all sub-queries, and the same with some unanswered."""
    key = "/".join(one.digest for one in documents)
    draw = Random(f"{GENERATOR}/{key}")
    asked = tuple(_need(one) for one in documents)
    texts = [one.text for one in documents]
    met = NEEDS - UNMET
    prior, rest = tuple(texts[: met - 1]), texts[met - 1]
    facts = tuple(texts)
    last = "\n\n".join(texts[met - 1 :])
    yield Session(key, "complete", "all", prior, last, facts, asked)
    yield Session(key, "truncated", "missing", prior, rest, facts, asked)
    titles = [re.sub(r" \(.*\)$", "", one.title) for one in documents[met:]]
    talk = " ".join(draw.choice(_NOTHING).format(title) for title in titles)
    yield Session(key, "truncated", "talk", prior, f"{rest}\n\n{talk}", facts, asked)


TARGET = 0.9
# Stage: the whole sessions, the broken ones.
AGAINST = {
    "coherence": (("coherent", "restated"), "contradicted"),
    "repetition": (("coherent",), "repeated"),
    "completeness": (("complete",), "truncated"),
    "flow": (("coherent",), "shuffled"),
}
# Above it a session counts as an alarm: of the flow where a remedy applies (§11.5).
ALARM = {"flow": 1.0 - QualitySettings().low_flow}


@dataclass(frozen=True, slots=True)
class Seen:
    """The four signals of one session, each higher the worse."""

    session: Session
    signals: dict[str, float]


def signals(report: Report) -> dict[str, float]:
    """What a report says against an answer: one number a stage, [0, 1], higher is worse.

    Completeness has none where nothing reads the answer.
    """
    quality = report.quality
    contradicted = [one.probability for one in report.cross_window_contradictions]
    return {
        "coherence": max(contradicted, default=0.0),
        "repetition": max(quality.repetition.overlap, quality.repetition.semantic),
        "flow": 1.0 - report.flow_score,
    } | ({} if (told := report.completeness_score) is None else {"completeness": 1.0 - told})


def run(
    sessions: Sequence[Session],
    embedder: Embedder | None,
    verifier: Verifier | None,
    settings: DpeSettings,
    say: Callable[[str], None],
) -> tuple[list[Seen], float]:
    """The signals of each session, and processor milliseconds a session."""
    before = time.process_time()
    found = []
    for done, session in enumerate(sessions, 1):
        dossier = Dossier(
            " ".join(session.sub_queries),
            session.answer,
            tuple((f"fact-{place}", text) for place, text in enumerate(session.facts, 1)),
            sub_queries=session.sub_queries,
            prior=tuple(
                PriorWindow(f"w{place}", place, text) for place, text in enumerate(session.prior, 1)
            ),
        )
        report = examine(dossier, embedder=embedder, verifier=verifier, settings=settings)
        found.append(Seen(session, signals(report)))
        if done % 100 == 0:
            say(f"{done} of {len(sessions)} sessions")
    return found, 1000 * (time.process_time() - before) / max(1, len(sessions))


def figures(found: Sequence[Seen]) -> dict[str, Any]:
    """AUROC of each stage over all its broken sessions and over those of each rule."""
    results: dict[str, Any] = {}
    for stage, (whole, broken) in AGAINST.items():
        read = [one for one in found if stage in one.signals]
        good = [one for one in read if one.session.kind in whole]
        bad = [one for one in read if one.session.kind == broken]
        if not good or not bad:
            continue
        rules = sorted({one.session.rule for one in bad})
        results[stage] = {
            "whole": len(good),
            "broken": len(bad),
            "auroc": _auroc(stage, good, bad),
            "target": TARGET,
            "met": _auroc(stage, good, bad) >= TARGET,
            "rules": {
                rule: _auroc(stage, good, [one for one in bad if one.session.rule == rule])
                for rule in rules
            },
            "alarms": {
                kind: round(_share(stage, [one for one in good if one.session.kind == kind]), 4)
                for kind in whole
            },
            "seen": round(_share(stage, bad), 4),
        }
    return results


def _auroc(stage: str, good: Sequence[Seen], bad: Sequence[Seen]) -> float:
    scores = [one.signals[stage] for one in (*good, *bad)]
    return round(auroc(scores, [False] * len(good) + [True] * len(bad)), 4)


def _share(stage: str, rows: Sequence[Seen]) -> float:
    """The share with an alarm: with a signal at all where no bound is named."""
    bound = ALARM.get(stage, 0.0)
    return sum(one.signals[stage] > bound for one in rows) / max(1, len(rows))


MODULE = "tests.bench.windows"


def main(arguments: list[str] | None = None) -> None:
    """Run the bench from a command line."""
    parser = argparse.ArgumentParser(prog=MODULE, description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of sets; without, what this Python holds")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--part", choices=("tune", "held"), default="tune")
    parser.add_argument("--most", type=int, default=80, help="sessions before any is broken")
    parser.add_argument("--sessions", type=Path, help="where to write each session of part tune")
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
    made = sessions(
        [one for one in articles(read(given.data)) if one.part == given.part], given.most
    )
    rows = json.dumps([asdict(one) for one in made], ensure_ascii=False, sort_keys=True)
    embedder: Embedder | None = None if given.lexical else OnnxEmbedder()
    verifier = default_verifier()
    found, spent = run(made, embedder, verifier, DpeSettings(), _say)
    if given.sessions and given.part == "tune":
        given.sessions.write_text(
            "".join(
                json.dumps({**asdict(one.session), "signals": one.signals}) + "\n" for one in found
            ),
            encoding="utf-8",
        )
    return {
        "generator": GENERATOR,
        "digest": hashlib.sha256(rows.encode()).hexdigest()[:16],
        "part": given.part,
        "made": dict(Counter(one.kind for one in made)),
        "verifier": verifier.identity if verifier else "none",
        "embedder": embedder.identity if embedder else "none",
        "cpu_ms": round(spent, 1),
        "machine": machine(),
        "results": figures(found),
    }


def show(report: dict[str, Any]) -> None:
    """Print the figures as a table."""
    print(
        f"{report['generator']}, part {report['part']}, digest {report['digest']}, "
        f"{report['cpu_ms']} ms a session"
    )
    print(f"{'stage':14}{'whole':>7}{'broken':>8}{'AUROC':>8}{'met':>7}  by rule")
    for stage, row in report["results"].items():
        rules = ", ".join(f"{name} {value:.3f}" for name, value in row["rules"].items())
        head = f"{stage:14}{row['whole']:>7}{row['broken']:>8}{row['auroc']:>8.3f}"
        print(f"{head}{row['met']!s:>7}  {rules}")
        if stage in ALARM:
            alarms = ", ".join(f"{kind} {share:.3f}" for kind, share in row["alarms"].items())
            print(f"{'':14}a remedy is recommended: {alarms}, broken {row['seen']:.3f}")


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main()
