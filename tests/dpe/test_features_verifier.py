"""The fitted verifier: what it reads, what its probabilities drive, and what may not change."""

from __future__ import annotations

import itertools
import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from crp_integrations import examine, weights
from crp_integrations.dpe.ports import Judgement
from crp_integrations.dpe.risk import calibrated, composite
from crp_integrations.dpe.settings import LEVEL_CUTS, DpeSettings
from crp_integrations.dpe.verifier.context import Context
from crp_integrations.dpe.verifier.features import align
from crp_integrations.dpe.verifier.features_verifier import AlignmentVerifier, FeaturesVerifier
from crp_integrations.dpe.verifier.fitted_model import SIGNALS, Fitted, Trees
from crp_integrations.dpe.verifier.source_records import Records, clocks, days_of
from crp_integrations.dpe.verifier.word_measures import Source, Wording, read_words, words_of
from crp_integrations.errors import EngineError
from crp_integrations.relay.defaults import default_verifier
from crp_integrations.vocabulary import Attribution, GroundingMode, RiskLevel
from tests.dpe.helpers import check, kinds
from tests.dpe.texts import HARBOUR, TEXTS

FACTS = [
    (
        "The notice period is 30 days. The contract was signed by Anna Lind on 3 May 2019. "
        "The fee is 50 euros per month."
    ),
    "Revenue was $4.2M in 2024, according to NIST. Staff numbers rose by 15% to 320 people.",
]
RECORD = (
    "name: Finch and Fork.\ncategories: Bars, Breakfast.\nhours Monday: 17:30-23:0.\n"
    "hours Tuesday: 9:0-21:0.\nattributes Outdoor Seating: False.\nattributes Wi Fi: free.\n"
    "attributes Restaurants Take Out: True.\nattributes Restaurants Reservations: None.\n"
    "attributes Restaurants Good For Groups: True.\nattributes Music: None.\nbusiness_stars: 4.0.\n"
)
MODES = (GroundingMode.OPEN, GroundingMode.PREFERRED, GroundingMode.STRICT)


def content() -> bytes:
    return weights.load("verifier").read("features.json")


@cache
def fitted() -> Fitted:
    return Fitted.of(content())


@cache
def shipped() -> FeaturesVerifier:
    return FeaturesVerifier(content())


@pytest.mark.requirement("005-4.3-5")
def test_the_report_names_the_rule_that_was_used() -> None:
    answer = "The fee is 50 euros per month."
    literal = DpeSettings.preset("literal")
    assert (literal.rule, literal.grounded, literal.mixed) == ("cosine", 0.75, 0.60)
    assert literal.verifier == "alignment"
    assert isinstance(default_verifier("alignment"), AlignmentVerifier)
    assert isinstance(default_verifier(), FeaturesVerifier)
    report = check(answer, FACTS, verifier=shipped())
    engines = {run.number: run.engine for run in report.stages}
    assert engines[2] == engines[4] == report.verifier == shipped().identity
    assert report.verifier.startswith("features@1+")
    assert report.thresholds["grounded"] == 0.75
    other = check(answer, FACTS, verifier=AlignmentVerifier())
    assert other.verifier == "alignment@1"
    assert other.hallucination_probability is None


@pytest.mark.requirement("005-6.2-1")
def test_no_engine_of_ours_is_called_nli_and_another_takes_its_place() -> None:
    assert "nli" not in shipped().identity.lower() + AlignmentVerifier.identity.lower()

    class CrossEncoder:
        identity = "nli-tiny@1+abc"
        passage = 500
        thresholds: dict[str, float] = {}

        def judge(self, claim: str, passages: list[str]) -> Judgement:
            assert passages and all(len(text) <= 500 for text in passages)
            return Judgement(0.7, 0.1, 0.2, 0)

    report = check("The fee is 50 euros per month.", FACTS, verifier=CrossEncoder())
    assert report.verifier == "nli-tiny@1+abc"
    assert report.entailment_score == 0.7
    assert report.neutral_probability == 0.2
    assert report.contradiction_probability == 0.1


def test_three_probabilities_of_one_claim_sum_to_one() -> None:
    for claim in ("The fee is 50 euros per month.", "The fee is 90 euros.", "Whales sing."):
        word = shipped().judge(claim, FACTS)
        assert word.entailment + word.neutral + word.contradiction == pytest.approx(1.0)
        assert min(word.entailment, word.neutral, word.contradiction) >= 0.0
    assert shipped().judge("The fee is 50 euros per month.", FACTS).entailment > 0.9
    assert shipped().judge("Whales sing in Norway.", FACTS).entailment < 0.7


@pytest.mark.parametrize(
    "answer",
    [
        "The fee is 80 euros per month.",
        "Revenue was $4.8M in 2024.",
        "The notice period is not 30 days.",
    ],
)
def test_one_changed_value_in_a_one_claim_answer_is_high(answer: str) -> None:
    report = check(answer, FACTS, verifier=shipped())
    assert report.risk_level in (RiskLevel.HIGH, RiskLevel.CRITICAL)
    assert report.hallucination_probability is not None
    assert report.hallucination_probability > 0.5
    assert report.fidelity_score == 0.8


def test_a_named_dropped_condition_in_a_one_claim_answer_is_high() -> None:
    fact = "Refunds are paid within ten days only if the original receipt is shown at the counter."
    report = check("Refunds are paid within ten days.", [fact], verifier=shipped())
    assert "CONTEXT_STRIPPED" in kinds(report)
    assert report.risk_level in (RiskLevel.HIGH, RiskLevel.CRITICAL)
    kept = check(
        "Refunds are paid within ten days only if the original receipt is shown.",
        [fact],
        verifier=shipped(),
    )
    assert kept.risk_level is RiskLevel.LOW


@pytest.mark.parametrize(
    "answer",
    [
        "Wendy Ventura (born 1979-01-30 in Chicago) is an American radio reporter.",
        "The $42,000,000 hotel is owned by the city and was opened on 11 November 2011.",
        "The river rises in 2 branches and flows east for 1200 kilometers.",
        "Sixty percent of the members voted for the new bylaws.",
    ],
)
def test_a_value_written_otherwise_is_read_as_the_same_words(answer: str) -> None:
    facts = [
        (
            "Wendy Ventura (born January 30, 1979 in Chicago) is an American radio reporter. "
            "The $42 million hotel is owned by the city and was opened on November 11, 2011."
        ),
        (
            "The river rises in two branches and flows east for 1,200 km. "
            "60% of the members voted for the new bylaws."
        ),
    ]
    report = check(answer, facts, verifier=shipped())
    assert kinds(report) == []
    assert report.risk_level is RiskLevel.LOW
    context = Context(facts)
    found = [align(claim.reads_as, context) for claim in report.claims]
    read = read_words(words_of(answer), report.claims, found, Source(context))
    assert read.known.all()


@pytest.mark.parametrize(
    "answer",
    [
        "The fee is 50 euros per month.",
        "The notice period is 30 days and the fee is 50 euros per month.",
        "The contract was signed by Anna Lind on 3 May 2019. Revenue was $4.2M in 2024.",
        "Staff rose by 15%, to 320 people.",
    ],
)
def test_a_grounded_answer_is_low(answer: str) -> None:
    report = check(answer, FACTS, verifier=shipped())
    assert report.risk_level is RiskLevel.LOW
    assert report.grounding_pct == 1.0
    assert kinds(report) == []


def test_what_the_context_does_not_hold_is_found() -> None:
    answer = "The fee is 50 euros per month. The harbour near Oslo opened its doors in 1950."
    report = check(answer, FACTS, verifier=shipped())
    assert [answer[f.start : f.end] for f in report.findings] == ["Oslo", "1950"]
    assert report.risk_level is RiskLevel.MEDIUM


@pytest.mark.requirement("005-7.2-5")
def test_weights_keep_their_order_and_each_map_rises() -> None:
    assert abs(sum(DpeSettings().weights.values()) - 1.0) < 1e-9
    order = list(DpeSettings().weights.values())
    assert order[0] > order[1] >= order[2] > order[3]
    for name in SIGNALS:
        curve = fitted().signals[name]
        assert list(curve.ys) == sorted(curve.ys)
        assert 0.0 <= min(curve.ys) <= max(curve.ys) <= 1.0
    assert list(fitted().risk.ys[1:-1]) == sorted(cut for cut, _ in LEVEL_CUTS)
    assert fitted().rate["odds"] > 0.0
    steep = fitted().risk.xs
    assert all(a < b for a, b in itertools.pairwise(steep))


share = st.floats(0, 1)


@given(share, share, share, share, share, share)
def test_the_composite_never_falls_when_a_signal_or_the_evidence_rises(
    a: float, b: float, c: float, d: float, evidence: float, more: float
) -> None:
    low, high = sorted((evidence, more))
    printed = dict(zip(SIGNALS, (a, b, c, d), strict=True))
    raised = {name: max(value, more) for name, value in printed.items()}
    score = composite(calibrated(printed, low, fitted()), DpeSettings())
    assert composite(calibrated(printed, high, fitted()), DpeSettings()) >= score
    assert composite(calibrated(raised, low, fitted()), DpeSettings()) >= score
    assert 0.0 <= score <= 1.0


def test_signals_sum_to_the_base_score_and_the_printed_formulas_stay() -> None:
    answer = "Anna Lind signed it. The fee is 70 euros per month. Whales sing."
    report = check(answer, FACTS, verifier=shipped(), settings=COMPOSITE)
    total = sum(DpeSettings().weights[name] * value for name, value in report.signals.items())
    assert report.base_score == pytest.approx(total)
    factual = report.claims_by_type["FACTUAL"]
    grounded = report.attribution_breakdown["CONTEXT_GROUNDED"]
    assert report.grounding_pct == grounded / factual
    wrong = 0.3 * report.fabrication_count + 0.2 * report.distortion_count
    assert report.fidelity_score == pytest.approx(1 - wrong / factual)
    assert report.entailment_score == min(
        c.entailment for c in report.claims if c.entailment is not None
    )


COMPOSITE = DpeSettings(decides="composite")
POOL = [*HARBOUR.split(". "), "Whales sing", "Doctor Quill sold 99 boats", "I think so", "It is so"]


@pytest.mark.requirement("005-4.2-2", "003-13.2-4")
@hypothesis_settings(max_examples=40, deadline=None)
@given(places=st.lists(st.integers(0, len(POOL) - 1), max_size=6))
def test_one_answer_scores_open_at_most_preferred_at_most_strict(places: list[int]) -> None:
    answer = ". ".join(POOL[place] for place in places)
    scores = [
        check(answer, [HARBOUR], grounding=mode, verifier=shipped()).composite_score
        for mode in MODES
    ]
    assert scores == sorted(scores)


PARAMETRIC = "The port authority employs 640 people. Whales sing."


@pytest.mark.requirement("003-13.2-2")
def test_under_strict_a_parametric_claim_is_a_finding_and_raises_the_risk() -> None:
    strict = check(PARAMETRIC, TEXTS, grounding=GroundingMode.STRICT, verifier=shipped())
    preferred = check(PARAMETRIC, TEXTS, verifier=shipped())
    parametric = [c for c in strict.claims if c.attribution is Attribution.PARAMETRIC]
    assert parametric
    found = [f.claim_id for f in strict.findings if f.kind == "parametric"]
    assert found == [c.claim_id for c in parametric]
    assert "parametric" not in kinds(preferred)
    assert strict.composite_score > preferred.composite_score


@pytest.mark.requirement("003-13.2-3")
def test_under_open_a_parametric_claim_does_not_raise_the_risk() -> None:
    alone = check(
        "Whales sing.", TEXTS, grounding=GroundingMode.OPEN, verifier=shipped(), settings=COMPOSITE
    )
    empty = check("", TEXTS, grounding=GroundingMode.OPEN, verifier=shipped(), settings=COMPOSITE)
    assert alone.claims[0].attribution is Attribution.PARAMETRIC
    assert alone.composite_score == pytest.approx(empty.composite_score, abs=1e-6)
    assert alone.risk_level is RiskLevel.LOW
    preferred = check("Whales sing.", TEXTS, verifier=shipped(), settings=COMPOSITE)
    assert alone.composite_score < preferred.composite_score


@pytest.mark.requirement("005-21.3-1")
def test_an_operator_gives_weights_of_its_own_and_the_report_shows_their_digest_alone() -> None:
    own = DpeSettings(
        decides="composite",
        attribution_weight=0.4,
        fidelity_weight=0.3,
        entailment_weight=0.2,
        specificity_weight=0.1,
    )
    answer = "Anna Lind signed it. The fee is 70 euros per month."
    report = check(answer, FACTS, verifier=shipped(), settings=own)
    total = sum(own.weights[name] * value for name, value in report.signals.items())
    assert report.base_score == pytest.approx(total)
    usual = check(answer, FACTS, verifier=shipped(), settings=COMPOSITE)
    assert report.base_score != usual.base_score


def test_the_same_input_gives_the_same_bytes() -> None:
    answer = PARAMETRIC + " Doctor Quill sold 99 boats."
    one = check(answer, TEXTS, verifier=FeaturesVerifier(content()))
    two = check(answer, TEXTS, verifier=FeaturesVerifier(content()))
    assert one.model_dump_json() == two.model_dump_json()


def test_no_answer_no_context_and_odd_texts() -> None:
    for answer, context in (("", TEXTS), ("Whales sing.", []), ("\u200b", [""]), ("🙂 7", ["x"])):
        report = check(answer, context, verifier=shipped())
        assert 0.0 <= report.composite_score <= 1.0
    assert check("Whales sing in 1954.", [], verifier=shipped()).risk_level is not RiskLevel.LOW


@pytest.mark.parametrize(
    "broken", [b"{", b"{}", b'{"schema":"verifier-fit/2"}'], ids=["cut", "empty", "newer"]
)
def test_a_file_that_is_none_is_refused(broken: bytes) -> None:
    with pytest.raises(EngineError):
        FeaturesVerifier(broken)


def test_trees_that_point_outside_are_refused() -> None:
    given = json.loads(content())["claim"]
    far = {**given, "right": [10**6, *given["right"][1:]]}
    # The last node has none after it, so it must be a leaf.
    open_ = {**given, "right": [*given["right"][:-1], 1]}
    for broken in (far, open_):
        with pytest.raises(EngineError, match="outside"):
            Trees.of(broken)


def test_the_file_is_small() -> None:
    assert len(content()) < 1_000_000


def test_records_are_read_slot_by_slot() -> None:
    records = Records([RECORD])
    assert records.share > 0.5
    for text, wanted in (
        ("It offers outdoor seating.", [-1, -1]),
        ("It does not offer outdoor seating.", [1, 1]),
        ("Takeout is available.", [1]),
        ("There is live music.", [0]),
        ("It lies by the sea.", []),
    ):
        assert [named.verdict for named in records.named(text)] == wanted, text
    assert records.times("Open on Monday from 5:30 PM to 11 PM.") == (2, 0)
    assert records.times("Open on Tuesday from 9 AM to 8 PM.") == (1, 1)
    assert records.rated("It has 4.0 stars.") == (1, 0)
    assert records.rated("It is rated 3.5 stars.") == (0, 1)
    assert not Records(["Note: this is a sentence."])
    as_json = '{"OutdoorSeating": false, "WiFi": "free", "Music": null, "stars": 4.5}'
    assert [n.verdict for n in Records([as_json]).named("It has outdoor seating.")] == [-1, -1]


def test_days_and_times_of_day() -> None:
    assert days_of("Friday to Monday") == [0, 4, 5, 6]
    assert days_of("Wednesday and Thursday") == [2, 3]
    assert days_of("weekdays") == [0, 1, 2, 3, 4]
    assert clocks("from 12 am to 12 pm") == [frozenset({0}), frozenset({720})]
    assert clocks("in 2019 it had 5 rooms") == []


WORD = st.sampled_from("harbour ferry crane grain library port staff winter of the in".split())


@given(st.lists(WORD, min_size=1, max_size=30), st.lists(WORD, min_size=1, max_size=12))
def test_runs_are_those_that_a_plain_search_finds(context: list[str], answer: list[str]) -> None:
    text = " ".join(context)
    wording = Wording([text], [(0, 0, len(text))])
    stems = words_of(" ".join(answer)).stems
    source = words_of(text).stems
    runs = wording.runs(wording.number(stems))
    rows = {source[a:b] for a in range(len(source)) for b in range(a + 1, len(source) + 1)}
    for at in range(len(stems)):
        best = max(
            (b - a for a in range(at + 1) for b in range(at + 1, len(stems) + 1)
             if stems[a:b] in rows),
            default=0,
        )  # fmt: skip
        # A run that starts within a longer one is found from where it starts.
        assert min(best, 1) <= runs[at] <= best


@given(
    st.lists(st.lists(WORD, min_size=1, max_size=20), min_size=1, max_size=3),
    st.lists(WORD, min_size=1, max_size=20),
)
def test_runs_are_the_same_followed_one_by_one_and_together(
    context: list[list[str]], answer: list[str]
) -> None:
    texts = [" ".join(words) for words in context]
    places = [(n, 0, len(text)) for n, text in enumerate(texts)]
    found = Wording(texts, places)
    ids = found.number(words_of(" ".join(answer)).stems)
    with pytest.MonkeyPatch.context() as patch:
        runs = []
        for few in (0, 2, 10_000):
            patch.setattr("crp_integrations.dpe.verifier.word_measures.FEW", few)
            runs.append(found.runs(ids).tolist())
    assert runs[0] == runs[1] == runs[2]
    # A row ends with its passage.
    assert max(runs[0]) <= max(len(words) for words in context)
    own = {row for text in texts for row in itertools.pairwise(words_of(text).stems)}
    said = itertools.pairwise(words_of(" ".join(answer)).stems)
    assert found.in_a_row(ids).tolist() == [row in own for row in said] + [False]


@pytest.mark.requirement("005-3.3-4")
def test_talk_about_the_answer_makes_it_no_worse_and_hides_nothing() -> None:
    facts = ["The Meridian reactor was commissioned on 4 March 2019."]
    silent = examine("The context does not contain an answer to this question.", context=facts)
    assert silent.risk_level is RiskLevel.LOW
    assert silent.findings == ()
    hidden = examine("As noted above, Toshiro Ito designed the reactor in 1987.", context=facts)
    assert hidden.risk_level is RiskLevel.MEDIUM
