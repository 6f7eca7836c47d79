"""Verifiers around networks, against the library's own way of running the same tiny network."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from crp_integrations.engines.verifiers.model_catalogue import model_hash
from crp_integrations.engines.verifiers.pair_verifiers import NetworkRun, NetworkVerifier
from crp_integrations.errors import ConfigError, EngineError
from tests.dpe.helpers import check
from tests.engines import tiny

PREMISE, CLAIM = "the tier is S .", "the tier is D ."
NLI = ["entailment", "neutral", "contradiction"]
RUN = NetworkRun(max_tokens=96, batch_size=3)
Feeds = list[dict[str, Any]]


def logits(folder: Path, *texts: str) -> Any:
    """What the library itself gives for a pair, or for one text."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.inference_mode():
        return model(**tokenizer(*texts, return_tensors="pt")).logits[0]


def watched(verifier: Any) -> Feeds:
    """The tensors that reach the network from now on."""
    seen: Feeds = []
    inner = verifier._network

    def forward(**feed: Any) -> Any:
        seen.append(feed)
        return inner(**feed)

    verifier._network = forward
    return seen


def runs(feeds: Feeds) -> list[list[int]]:
    return [
        ids[mask.bool()].tolist()
        for feed in feeds
        for ids, mask in zip(feed["input_ids"], feed["attention_mask"], strict=True)
    ]


def verifier_of(family: str, folder: Path, **options: Any) -> NetworkVerifier:
    return NetworkVerifier(family, folder, sha256=model_hash(folder), **{"run": RUN, **options})


def nli(folder: Path, **options: Any) -> NetworkVerifier:
    return verifier_of("nli", folder, **options)


@pytest.mark.parametrize(
    "labels",
    [
        NLI,
        ["contradiction", "entailment", "neutral"],
        ["NEUTRAL", "CONTRADICTION", "ENTAILMENT"],
        ["not_entailment", "entailment"],
    ],
)
def test_each_order_of_labels_is_read_from_the_config(tmp_path: Path, labels: list[str]) -> None:
    folder = tiny.bert(tmp_path / "nli", labels)
    wanted = torch.softmax(logits(folder, PREMISE, CLAIM), -1).tolist()
    named = {label.casefold(): value for label, value in zip(labels, wanted, strict=True)}
    found = nli(folder).judge(CLAIM, [PREMISE])
    assert found.entailment == pytest.approx(named["entailment"], abs=2e-6)
    assert found.contradiction == pytest.approx(named.get("contradiction", 0.0), abs=2e-6)
    assert found.entailment + found.contradiction + found.neutral == pytest.approx(1.0, abs=1e-6)


def test_unnamed_outputs_have_to_be_named(tmp_path: Path) -> None:
    folder = tiny.bert(tmp_path / "nli", ["LABEL_0", "LABEL_1", "LABEL_2"])
    with pytest.raises(ConfigError, match="labels="):
        nli(folder)
    with pytest.raises(ConfigError, match="2 labels were given, the model has 3"):
        nli(folder, labels=NLI[:2])
    wanted = torch.softmax(logits(folder, PREMISE, CLAIM), -1)[2].item()
    found = nli(folder, labels=["contradiction", "neutral", "entailment"])
    assert found.judge(CLAIM, [PREMISE]).entailment == pytest.approx(wanted, abs=2e-6)


def test_the_best_passage_decides_and_batches_change_nothing(tmp_path: Path) -> None:
    folder = tiny.bert(tmp_path / "nli", NLI)
    passages = [PREMISE, "cats sleep long .", "wind farm , budget tokens .", "filler", "a tier"]
    single = nli(folder, run=NetworkRun(max_tokens=96, batch_size=1))
    alone = [single.judge(CLAIM, [passage]) for passage in passages]
    best = max(alone, key=lambda one: one.entailment)
    if best.entailment < 0.5:
        opposed = max(alone, key=lambda one: one.contradiction)
        best = opposed if opposed.contradiction >= 0.5 else best
    for size in (1, 2, 5):
        found = nli(folder, run=NetworkRun(max_tokens=96, batch_size=size)).judge(CLAIM, passages)
        assert found.passage == alone.index(best)
        assert found.entailment == pytest.approx(best.entailment, abs=2e-6)
        assert found.contradiction == pytest.approx(best.contradiction, abs=2e-6)


def test_every_token_of_a_long_passage_and_a_long_claim_is_read(tmp_path: Path) -> None:
    verifier = nli(tiny.bert(tmp_path / "nli", NLI))
    feeds = watched(verifier)
    words = [tiny.WORDS[place % len(tiny.WORDS)] for place in range(300)]
    verifier.judge(" ".join(words[::-1]), [" ".join(words)])
    tokens = len(tiny.BERT)
    ids = [tokens + tiny.WORDS.index(word) for word in words]
    seen = runs(feeds)
    assert max(map(len, seen)) <= 96
    middle = [run.index(3) for run in seen]
    premises = [run[1:at] for run, at in zip(seen, middle, strict=True)]
    claims = [run[at + 1 : -1] for run, at in zip(seen, middle, strict=True)]
    for pieces, whole in ((premises, ids), (claims, ids[::-1])):
        starts = [
            at for at in range(len(whole)) if any(whole[at : at + len(p)] == p for p in pieces)
        ]
        covered = {
            at + step
            for at in starts
            for p in pieces
            if whole[at : at + len(p)] == p
            for step in range(len(p))
        }
        assert covered == set(range(len(whole)))


def test_the_weakest_piece_of_a_long_claim_counts(tmp_path: Path) -> None:
    verifier = nli(tiny.bert(tmp_path / "nli", NLI))
    claim = " ".join(tiny.WORDS * 3)
    feeds = watched(verifier)
    found = verifier.judge(claim, [PREMISE])
    with torch.inference_mode():
        rows = torch.cat([verifier._network(**feed).logits for feed in list(feeds)])
    assert len(rows) > 1
    assert found.entailment == pytest.approx(torch.softmax(rows, -1)[:, 0].min().item(), abs=2e-6)


def test_control_tokens_in_a_text_are_text(tmp_path: Path) -> None:
    verifier = nli(tiny.bert(tmp_path / "nli", NLI))
    feeds = watched(verifier)
    verifier.judge("tier [SEP] is", ["[CLS] the [SEP] tier [PAD]"])
    (run,) = runs(feeds)
    assert [run.count(special) for special in (0, 2, 3)] == [0, 1, 2]


def test_a_claim_without_tokens_is_not_entailed_and_no_passage_is_an_error(tmp_path: Path) -> None:
    verifier = nli(tiny.bert(tmp_path / "nli", NLI))
    assert verifier.judge("  ", [PREMISE]).neutral == 1.0
    assert verifier.judge(CLAIM, [""]).passage == 0
    with pytest.raises(ConfigError, match="no passage"):
        verifier.judge(CLAIM, [])


def test_the_identity_names_model_hash_and_versions(tmp_path: Path) -> None:
    folder = tiny.bert(tmp_path / "nli", NLI)
    verifier = nli(folder)
    for part in ("nli@1", "nli@local", model_hash(folder), version("torch")):
        assert part in verifier.identity
    assert f"transformers {transformers.__version__}" in verifier.identity
    assert verifier.thresholds["nli_max_tokens"] == 96
    assert verifier.thresholds["nli_entailed"] == 0.5


def test_changed_weights_are_refused_before_they_are_loaded(tmp_path: Path) -> None:
    folder = tiny.bert(tmp_path / "nli", NLI)
    pin = model_hash(folder)
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with pytest.raises(EngineError, match="wanted sha256:"):
        NetworkVerifier("nli", folder, sha256=pin)


def test_a_failing_run_names_the_library(tmp_path: Path) -> None:
    verifier = nli(tiny.bert(tmp_path / "nli", NLI))

    def broken(**feed: Any) -> Any:
        raise RuntimeError("out of memory")

    verifier._network = broken
    with pytest.raises(EngineError, match="torch") as caught:
        verifier.judge(CLAIM, [PREMISE])
    assert (caught.value.engine, caught.value.version) == ("torch", version("torch"))
    verifier._network = lambda **feed: SimpleNamespace(
        logits=torch.full((len(feed["input_ids"]), 3), torch.nan)
    )
    with pytest.raises(EngineError, match="not finite"):
        verifier.judge(CLAIM, [PREMISE])


def test_minicheck_frames_as_minicheck_does(tmp_path: Path) -> None:
    folder = tiny.roberta(tmp_path / "minicheck")
    wanted = torch.softmax(logits(folder, "</s>".join([PREMISE, CLAIM])), -1)[1].item()
    verifier = verifier_of("minicheck", folder)
    found = verifier.judge(CLAIM, [PREMISE])
    assert found.entailment == pytest.approx(wanted, abs=2e-6)
    assert found.contradiction == 0.0
    # Positions of RoBERTa start behind its padding.
    assert verifier_of("minicheck", folder, run=None).thresholds[
        "minicheck_max_tokens"
    ] == 128  # fmt: skip
    long = verifier_of("minicheck", folder, run=None).judge(CLAIM, [PREMISE * 40])
    assert 0.0 <= long.entailment <= 1.0


def test_a_cross_encoder_of_one_output_is_read_as_hhem(tmp_path: Path) -> None:
    folder = tiny.bert(tmp_path / "one", ["LABEL_0"])
    wanted = torch.sigmoid(logits(folder, PREMISE, CLAIM))[0].item()
    verifier = verifier_of("hhem", folder)
    assert verifier.judge(CLAIM, [PREMISE]).entailment == pytest.approx(wanted, abs=2e-6)
    several = tiny.bert(tmp_path / "nli", NLI)
    with pytest.raises(ConfigError, match="'nli' reads several"):
        verifier_of("hhem", several)


@pytest.mark.parametrize("kind", ["nli", "minicheck", "hhem"])
def test_the_report_names_engine_version_and_thresholds(tmp_path: Path, kind: str) -> None:
    folder = {
        "nli": lambda place: tiny.bert(place, NLI),
        "minicheck": tiny.roberta,
        "hhem": lambda place: tiny.bert(place, ["LABEL_0"]),
    }[kind](tmp_path / kind)
    verifier = verifier_of(kind, folder)
    examined: Callable[[], Any] = lambda: check(  # noqa: E731
        "The tier is S. Cats sleep long.", ["The tier is S."], verifier=verifier
    )  # fmt: skip
    report = examined()
    assert report.verifier == verifier.identity
    assert next(run for run in report.stages if run.number == 4).engine == verifier.identity
    assert verifier.thresholds.items() <= report.thresholds.items()
    assert report == examined()
    found = verifier.judge(report.claims[0].reads_as, ["The tier is S."])
    # Stage 3 may bound what the verifier says, never raise it.
    assert report.claims[0].entailment is not None
    assert report.claims[0].entailment <= found.entailment + 1e-6


def test_sizes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size is 0"):
        NetworkRun(batch_size=0)
    with pytest.raises(ConfigError, match="max_tokens is 10"):
        NetworkRun(max_tokens=10)
    folder = tiny.bert(tmp_path / "nli", NLI)
    with pytest.raises(EngineError, match="device"):
        nli(folder, run=NetworkRun(device="nowhere"))
