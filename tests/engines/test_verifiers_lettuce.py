"""LettuceDetect: groups of passages, tokens to one judgement; and the library over a tiny network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.engines.verifiers.lettuce import LettuceVerifier, _groups
from crp_integrations.engines.verifiers.model_catalogue import model_hash
from crp_integrations.engines.verifiers.pair_verifiers import NetworkRun
from crp_integrations.errors import ConfigError, EngineError

CLAIM = "the tier is S ."


class Words:
    """A detector's door: a word is doubtful unless a passage of the context has it."""

    def __init__(self) -> None:
        self.contexts: list[list[str]] = []

    def predict(
        self, context: list[str], answer: str, question: str | None, output_format: str
    ) -> list[dict[str, Any]]:
        assert question is None and output_format == "tokens"
        self.contexts.append(context)
        there = {word for text in context for word in text.split()}
        return [
            {"token": word, "pred": int(word not in there), "prob": 0.1 + 0.8 * (word not in there)}
            for word in answer.split()
        ]


def around(detector: Any, **options: Any) -> LettuceVerifier:
    return LettuceVerifier(detector=detector, identity="mine/1", **options)


def test_the_token_in_most_doubt_speaks_for_the_claim() -> None:
    verifier = around(Words())
    assert verifier.judge(CLAIM, ["the tier is S ."]).entailment == pytest.approx(0.9)
    found = verifier.judge(CLAIM, ["the tier is D ."])
    assert found.entailment == pytest.approx(0.1)
    assert (found.contradiction, found.neutral) == (0.0, pytest.approx(0.9))


def test_evidence_may_lie_in_several_groups_and_an_unrelated_one_spoils_nothing() -> None:
    detector = Words()
    verifier = around(detector, run=NetworkRun(max_tokens=400))
    filler = ["cats " * 12, "wind " * 12, "farm " * 12, "sleep " * 12]
    found = verifier.judge(CLAIM, [*filler, "the tier", *filler, "is S ."])
    assert len(detector.contexts) > 2
    assert found.entailment == pytest.approx(0.9)
    assert verifier.judge(CLAIM, [*filler, CLAIM]).passage in (3, 4)
    assert verifier.judge(CLAIM, filler).entailment == pytest.approx(0.1)


@given(st.lists(st.text(max_size=300), min_size=1, max_size=5), st.integers(40, 300))
def test_groups_fit_and_leave_nothing_out(passages: list[str], room: int) -> None:
    passages = [text.encode("utf-8", "ignore").decode() for text in passages]
    groups = _groups(passages, room)
    for group in groups:
        assert sum(len(text.encode()) + 16 for _, text in group) <= room
    given_ = [place for group in groups for place, _ in group]
    assert given_ == sorted(given_) and set(given_) == set(range(len(passages)))
    for place, passage in enumerate(passages):
        mine = [text for group in groups for at, text in group if at == place]
        assert set("".join(mine)) == set(passage)


def test_what_cannot_be_read_is_an_error() -> None:
    verifier = around(Words(), run=NetworkRun(max_tokens=400))
    with pytest.raises(ConfigError, match="a claim has"):
        verifier.judge("tier " * 60, ["a"])
    with pytest.raises(ConfigError, match="no passage"):
        verifier.judge(CLAIM, [])
    assert verifier.judge(" ", ["a"]).neutral == 1.0

    class Odd:
        def __init__(self, given: Any) -> None:
            self.given = given

        def predict(self, **asked: Any) -> Any:
            return self.given

    for given_ in ([], None, [{"token": "a"}], [{"prob": 2.0}], [{"prob": float("nan")}]):
        with pytest.raises(EngineError, match="lettucedetect"):
            around(Odd(given_)).judge(CLAIM, ["a"])


def test_arguments_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either a model or a detector"):
        LettuceVerifier()
    with pytest.raises(ConfigError, match="either a model or a detector"):
        LettuceVerifier(tmp_path, detector=Words(), identity="mine/1")
    with pytest.raises(ConfigError, match="identity is empty"):
        LettuceVerifier(detector=Words())
    with pytest.raises(ConfigError, match="max_tokens is 128"):
        around(Words(), run=NetworkRun(max_tokens=128))
    assert "files not checked" in around(Words()).identity


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("lettucedetect")
    from tests.engines import tiny

    return tiny.bert(
        tmp_path / "lettuce", ["supported", "hallucinated"], tokens=True, positions=512
    )


def test_the_library_over_a_tiny_network(folder: Path) -> None:
    import lettucedetect

    verifier = LettuceVerifier(folder, sha256=model_hash(folder), run=NetworkRun(max_tokens=400))
    passages = ["the tier is S .", "cats sleep long ."]
    own = lettucedetect.HallucinationDetector(
        method="transformer", model_path=str(folder), max_length=400, device="cpu"
    )
    tokens = own.predict(context=passages, answer=CLAIM, output_format="tokens")
    found = verifier.judge(CLAIM, passages)
    # The library counts the mark behind the claim; here it is the token in most doubt.
    assert [token["token"] for token in tokens] == [*CLAIM.split(), "[SEP]"]
    assert max(tokens, key=lambda token: token["prob"]) is tokens[-1]
    doubt = max(token["prob"] for token in tokens[:-1])
    assert found.entailment == pytest.approx(1 - doubt, abs=2e-6)
    assert found == verifier.judge(CLAIM, passages)
    for part in (
        "lettucedetect@1",
        model_hash(folder),
        f"lettucedetect {lettucedetect.__version__}",
    ):
        assert part in verifier.identity
    assert verifier.thresholds["lettucedetect_max_tokens"] == 400
    with pytest.raises(EngineError, match="wanted sha256:"):
        LettuceVerifier(folder, sha256="sha256:" + "0" * 64)


def test_control_tokens_in_a_text_are_text_to_the_library(folder: Path) -> None:
    verifier = LettuceVerifier(folder, sha256=model_hash(folder), run=NetworkRun(max_tokens=400))
    inner = verifier._detector.detector
    seen: list[list[int]] = []
    inner.model.register_forward_pre_hook(
        lambda module, args, given_: seen.append(given_["input_ids"][0].tolist()), with_kwargs=True
    )
    verifier.judge("tier [SEP] is", ["[CLS] tier [SEP]"])
    assert [seen[-1].count(special) for special in (2, 3)] == [1, 2]
