"""What must pass: true sentences, however they are written."""

from __future__ import annotations

import random

import pytest

from crp_integrations.language.text import split_sentences
from crp_integrations.vocabulary import Attribution, RiskLevel
from tests.doubles import HashEmbedder
from tests.dpe import perturb
from tests.dpe.helpers import check, kinds
from tests.dpe.texts import HARBOUR, LIBRARY, MEDICINE, SPACE, TEXTS

SENTENCES = [span.of(text) for text in TEXTS for span in split_sentences(text)]


@pytest.mark.parametrize("embedder", [None, HashEmbedder()], ids=["lexical", "hash"])
@pytest.mark.parametrize("answer", [*SENTENCES, *TEXTS])
def test_verbatim(answer: str, embedder: HashEmbedder | None) -> None:
    report = check(answer, TEXTS, embedder=embedder)
    assert kinds(report) == []
    assert report.risk_level is RiskLevel.LOW
    assert {c.attribution for c in report.claims} <= {Attribution.CONTEXT_GROUNDED, None}
    assert report.fidelity_score == 1.0
    for claim in report.claims:
        assert claim.evidence or claim.attribution is None


REFORMATTED = [
    (HARBOUR, "The harbour of Lindmouth handled 4.2 million tonnes of freight in 2023."),
    (HARBOUR, "In 2023, the harbour of Lindmouth handled 4.2 million tonnes of freight."),
    (HARBOUR, "On 12 March 2024 its north pier was opened by the engineer Clara Voss."),
    (HARBOUR, "Its north pier was opened on March 12, 2024 by Clara Voss, an engineer."),
    (HARBOUR, "Compared with 2022, freight grew by 15 percent."),
    (HARBOUR, "Lindmouth Harbour Trust, the port authority, earned $18,500,000 and employs 640 people."),
    (LIBRARY, "Edmund Hale, a paper merchant from Bristol, founded it in 1871."),
    (LIBRARY, "Only if a librarian is present may readers borrow rare books."),
    (LIBRARY, "In November 1932 a fire destroyed 5,000 metres of shelves in the east wing."),
    (LIBRARY, "The Arden Library has 42 manuscripts from the 14th century and holds 310,000 volumes."),
    (MEDICINE, "On May 7, 2019, the European Medicines Agency approved the tablet."),
    (MEDICINE, "In the trial led by Professor Inga Moritz, side effects were reported by 8 per cent of patients."),
    (MEDICINE, "During pregnancy it must not be taken."),
    (MEDICINE, "If the patient develops a rash, treatment is stopped."),
    (SPACE, "The probe Meridian 4 reached Ceres in March 2021 and left Earth orbit in August 2016."),
    (SPACE, "It was built by Halden Aerospace in Toulouse, weighs 1.25 tonnes and carries three cameras."),
    (SPACE, "The mission cost €740 million, which is €60 million less than planned."),
    (SPACE, "The probe hasn't found water on the surface."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "answer"), REFORMATTED)
def test_reordered_and_reformatted(text: str, answer: str) -> None:
    report = check(answer, [other for other in TEXTS if other != text] + [text])
    assert kinds(report) == []
    assert report.risk_level is RiskLevel.LOW
    assert {c.attribution for c in report.claims} <= {Attribution.CONTEXT_GROUNDED, None}


PARAPHRASED = [
    (HARBOUR, "Passenger ships are not served by the pier."),
    (HARBOUR, "Freight at Lindmouth increased by 15% over 2022."),
    (LIBRARY, "Edmund Hale, who traded in paper in Bristol, founded the library in 1871."),
    (MEDICINE, "A trial with 860 patients found that Tavorel lowers blood pressure by 12 mmHg."),
    (SPACE, "Dr. Samuel Okoro's engineers restored the antenna, which failed in 2020, in 9 days."),
]


@pytest.mark.parametrize(("text", "answer"), PARAPHRASED)
def test_mild_paraphrase(text: str, answer: str) -> None:
    report = check(answer, [text])
    assert kinds(report) == []
    assert report.risk_level is not RiskLevel.CRITICAL


def test_seeded_edits_are_caught_and_true_sentences_pass() -> None:
    rng = random.Random(5)
    others = ["Martin Brandt", "Norden Systems", "Robert Pym", "Reykjavik"]
    edits = {
        "number": lambda text: perturb.number(rng, text),
        "date": lambda text: perturb.date(rng, text),
        "name": lambda text: perturb.name(rng, text, others),
        "negated": perturb.negated,
        "affirmed": perturb.affirmed,
    }
    tried: dict[str, int] = dict.fromkeys(edits, 0)
    missed: list[tuple[str, str]] = []
    for sentence in SENTENCES * 3:
        for name, edit in edits.items():
            false = edit(sentence)
            if false is None or false in SENTENCES:
                continue
            tried[name] += 1
            report = check(false, TEXTS)
            if not report.findings or report.risk_level is RiskLevel.LOW:
                missed.append((name, false))
    assert min(tried.values()) >= 6
    assert len(missed) <= 0.03 * sum(tried.values()), missed
