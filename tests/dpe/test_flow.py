"""Stage 9: whether an answer reads on from the window before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.dpe.settings import QualitySettings
from crp_integrations.dpe.stages.flow import (
    complexity,
    flow_score,
    has_transition,
    mean_length,
    opening_coherence,
    passive_ratio,
    persons,
    register_consistency,
    remediation,
    topic_continuity,
    topics,
)
from crp_integrations.dpe.state import SessionText
from crp_integrations.engines.onnx import OnnxEmbedder
from tests.dpe.helpers import LITERAL
from tests.dpe.windows import after

# §11.2 of the document.
W1 = "The EU AI Act classifies AI systems into four risk levels. They range from minimal to high."
BAD = [
    "The EU AI Act introduces a risk-based approach to AI regulation. It has four categories.",
    "In conclusion, the EU AI Act is a law.",
]
GOOD = [
    "Building on this classification, the Act defines specific obligations for each risk level.",
    "These obligations translate into compliance requirements for each risk level of the Act.",
]
DEFAULT = QualitySettings()
SCORE = st.floats(0, 1)


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder()


@pytest.mark.requirement("005-11.2-1")
@pytest.mark.parametrize("embedded", [True, False])
def test_windows_that_extend_each_other_flow_better(embedder: OnnxEmbedder, embedded: bool) -> None:
    engine = embedder if embedded else None
    for place in (0, 1):
        bad = after(BAD[place], *[W1, *BAD][: place + 1], embedder=engine)
        good = after(GOOD[place], *[W1, *GOOD][: place + 1], embedder=engine)
        assert good.flow_score > bad.flow_score
        assert good.quality.flow.transition == 1.0
        assert bad.quality.flow.transition == 0.0


@pytest.mark.requirement("005-11.3-1")
def test_the_first_window_flows() -> None:
    report = after("Tulips bloom.")
    flow = report.quality.flow
    assert (flow.score, flow.opening, flow.topic, flow.register_, flow.transition) == (1.0,) * 5
    assert report.flow_remediation is None
    assert report.repetition_level.value == "NONE"
    assert report.quality.coherence.score == 1.0
    assert next(run.engine for run in report.stages if run.number == 9) == "no earlier window"
    assert after("Tulips bloom.", "Cars rust.").flow_score < 1.0


@pytest.mark.requirement("005-11.3-2")
def test_opening_coherence_is_the_cosine_of_the_two_ends(embedder: OnnxEmbedder) -> None:
    prior = "Whales swim far. Ferries leave the port at noon. They carry cars."
    here = "The cars leave the ferries in Oslo. The trip is short. Tulips bloom."
    ends = embedder.embed_passages(
        ["The cars leave the ferries in Oslo. The trip is short.",
         "Ferries leave the port at noon. They carry cars."]
    )  # fmt: skip
    cosine = float(ends[0] @ ends[1])
    flow = after(here, prior, embedder=embedder, settings=LITERAL).quality.flow
    assert flow.opening == pytest.approx(cosine, abs=1e-5)
    assert flow.cosine == pytest.approx(cosine, abs=1e-5)
    assert LITERAL.quality.low_opening == 0.40
    for threshold, low in ((cosine - 0.01, False), (cosine + 0.01, True)):
        quality = LITERAL.quality.model_copy(update={"low_opening": threshold})
        settings = LITERAL.model_copy(update={"quality": quality})
        assert after(here, prior, embedder=embedder, settings=settings).quality.flow.abrupt is low
    default = after(here, prior, embedder=embedder)
    assert default.thresholds["quality.low_opening"] == embedder.thresholds["opening_coherence"]


@given(SCORE, SCORE, st.floats(0.05, 0.95))
def test_the_scale_of_another_embedder_is_monotone_and_keeps_its_ends(
    one: float, other: float, low: float
) -> None:
    low_value, high_value = sorted((one, other))
    assert opening_coherence(low_value, low) <= opening_coherence(high_value, low)
    assert opening_coherence(low, low) == pytest.approx(0.40)
    assert opening_coherence(0.0, low) == 0.0
    assert opening_coherence(1.0, low) == pytest.approx(1.0)
    assert opening_coherence(one, 0.40) == pytest.approx(one, abs=1e-6)


@pytest.mark.requirement("005-11.3-3")
def test_topics_are_compared_by_jaccard() -> None:
    port = "The port authority runs ferries. The port authority sells tickets for ferries."
    assert topic_continuity(port, port, 5) == 1.0
    other = "Tulips need sunlight. Gardens with tulips bloom in spring."
    assert topic_continuity(port, other, 5) == 0.0
    mixed = "The port authority grows tulips. Gardens with tulips bloom in spring."
    assert 0.0 < topic_continuity(port, mixed, 5) < 1.0
    report = after(other, port)
    assert report.quality.flow.shifted
    assert not report.quality.flow.expected
    asked = after(other, port, sub_queries=["Gardens with tulips bloom"], settings=LITERAL)
    assert asked.quality.flow.shifted
    assert asked.quality.flow.expected
    assert asked.flow_remediation is None


def test_windows_that_say_the_same_things_have_topics_in_common() -> None:
    before = (
        "The harbour master assigns berths to arriving ships. A pilot boards each tanker before "
        "it passes the breakwater. Tugs push tankers to their berths when the wind is strong. "
        "Cargo is weighed at the quay, and customs officers seal the containers."
    )
    here = (
        "Fees depend on the tonnage of ships and on how long berths are taken. Pilots are paid "
        "by the hour. Strong wind closes the breakwater, so that tankers wait outside. "
        "Invoices are sent by the agent of the carrier each month."
    )
    assert topic_continuity(before, here, 5) > 0.4
    assert not after(here, before).quality.flow.shifted


TEXTS = st.lists(
    st.sampled_from("port ferry tulip garden risk level act city bridge river is the of.".split()),
    max_size=30,
).map(" ".join)


@given(TEXTS, TEXTS, st.integers(1, 8))
def test_topics_are_compared_both_ways_alike(one: str, other: str, count: int) -> None:
    found = topic_continuity(one, other, count)
    assert found == topic_continuity(other, one, count)
    assert 0.0 <= found <= 1.0
    left, right = topics(one, other, count)
    assert max(len(left), len(right)) <= count
    assert topic_continuity(one, one, count) == float(bool(topics(one, one, count)[0]))


@pytest.mark.requirement("005-11.3-4")
def test_register_bands() -> None:
    def text(length: int) -> SessionText:
        words = [f"word{chr(97 + n)}" for n in range(length)]
        return SessionText(f"{' '.join(words).capitalize()}.")

    assert mean_length(text(10)) == 10
    # Ten words against eight is 20 % apart, against seven 30 %.
    assert register_consistency(text(10), text(8), DEFAULT) == 1.0
    assert register_consistency(text(10), text(7), DEFAULT) == 0.75
    assert complexity("a b c d", 4) == 1.0
    assert complexity("a a b b", 4) == 0.5
    plain = SessionText("We go home today. You stay here now.")
    assert persons(plain.text) == (True, True)
    assert persons("They left.") == (False, False)
    third = SessionText("They go home today. Cats stay here now.")
    assert register_consistency(plain, third, DEFAULT) == 0.75
    active = SessionText("The crew built the bridge. The crew painted the bridge.")
    passive = SessionText("The bridge was built quickly. The bridge was painted then.")
    assert (passive_ratio(active), passive_ratio(passive)) == (0.0, 1.0)
    assert register_consistency(active, passive, DEFAULT) < 1.0
    assert register_consistency(active, active, DEFAULT) == 1.0


@pytest.mark.requirement("005-11.3-5")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        (["Furthermore, it applies."], True),
        (["Building on this, it applies."], True),
        (["As noted previously, it applies."], True),
        (["The next aspect is cost."], True),
        (["## Part two", "- Moreover, it applies."], True),
        (["It applies.", "It is law.", "In addition, it is new."], True),
        (["It applies.", "It is law.", "It is new.", "In addition, it is old."], False),
        (["It applies and furthermore it is new."], False),
        (["These duties are many."], True),
        (["It applies.", "These duties are many."], False),
        (["In conclusion, it applies."], False),
        (["Thusness is a word."], False),
        ([], False),
    ],
)
def test_transitions(text: list[str], found: bool) -> None:
    assert has_transition(text) is found


@pytest.mark.requirement("005-11.4-1")
@given(SCORE, SCORE, st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([0.0, 1.0]))
def test_the_flow_score(opening: float, topic: float, register: float, transition: float) -> None:
    wanted = opening * 0.35 + topic * 0.25 + register * 0.20 + transition * 0.20
    assert flow_score(opening, topic, register, transition, DEFAULT) == pytest.approx(
        wanted, abs=1e-6
    )


def test_a_report_holds_the_score_of_its_signals() -> None:
    flow = after(GOOD[0], W1).quality.flow
    assert flow.score == flow_score(
        flow.opening, flow.topic, flow.register_, flow.transition, DEFAULT
    )


@pytest.mark.parametrize(
    ("score", "augment", "stitch"),
    [(0.5, None, None), (0.4999, "augment", "stitch"), (0.3, "augment", "stitch"),
     (0.2999, "redispatch", "stitch")],
)  # fmt: skip
def test_remedies(score: float, augment: str | None, stitch: str | None) -> None:
    assert remediation(score, DEFAULT) == augment
    assert remediation(score, QualitySettings(flow_remedy="stitch")) == stitch


def test_an_answer_without_sentences_has_no_flow() -> None:
    flow = after("…", W1).quality.flow
    assert (flow.opening, flow.topic, flow.register_, flow.transition) == (0.0, 0.0, 0.0, 0.0)
    assert flow.abrupt
