"""The recipe of the fitted verifier: labels, changed sentences, weights, and trees as arrays."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from crp_integrations.dpe.verifier.fitted_model import Fitted, Trees
from crp_integrations.seals import sha256_hex
from tests.recipes.verifier.__main__ import card, main
from tests.recipes.verifier.labelled_answers import (
    Answer,
    changed_answers,
    measured,
    read,
)
from tests.recipes.verifier.layers import COMMON, arrays, balanced, fold_of

lightgbm = pytest.importorskip("lightgbm")

TEXT = (
    "The old bridge of Ostrava was opened in 1951 by the council. It carries 4,200 cars on a "
    "usual day in summer. The tolls were not raised by the town of Kiruna in March. "
    "Its keeper, Anna Lind, has two sons who study in Lagos."
)


def test_trees_as_arrays_say_what_lightgbm_says() -> None:
    chooser = np.random.default_rng(3)
    x = np.round(chooser.random((400, 5)), 3)
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0.8).astype(float)
    booster = lightgbm.train(
        {**COMMON, "num_leaves": 15, "min_data_in_leaf": 5}, lightgbm.Dataset(x, y), 30
    )
    flat = Trees.of(arrays(booster.dump_model()["tree_info"], tuple("abcde")))
    assert flat.depth <= 6
    assert np.allclose(flat(x), booster.predict(x, raw_score=True), atol=1e-3)


def test_changed_answers_hold_their_change_and_right_ones_their_context() -> None:
    contexts = [TEXT, TEXT.replace("Ostrava", "Medina").replace("1951", "1931") + " It is long."]
    found = changed_answers(
        [Answer("g", "", context, "x", False, ()) for context in contexts], most=20
    )
    assert len(found) >= 4
    assert {answer.wrong for answer in found} == {True, False}
    for right, wrong in zip(found[::2], found[1::2], strict=True):
        assert right.text in right.context
        (span,) = wrong.spans or ()
        assert 0 <= span[0] < span[1] <= len(wrong.text)
        assert wrong.text not in wrong.context
    assert found == changed_answers([Answer("g", "", c, "x", False, ()) for c in contexts], most=20)


def test_both_classes_weigh_the_same_within_each_group() -> None:
    y = np.array([1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, np.nan])
    weight = balanced(["a", "b"], np.array([0, 0, 0, 0, 1, 1, 1, 1]), y)
    assert weight[0] == weight[1:4].sum()
    assert weight[4:6].sum() == weight[6]
    assert weight[7] == 0.0


def test_edits_are_the_spans_of_minimal_pairs(tmp_path: Path) -> None:
    rows = [
        {"task": "t", "context": TEXT, "answer": "It carries 4,200 cars on a usual day.",
         "hallucinated": False, "spans": []},
        {"task": "t", "context": TEXT, "answer": "It carries 9,200 cars on a usual day.",
         "hallucinated": True, "spans": []},
        {"task": "t", "context": TEXT, "answer": "Nobody knows.", "hallucinated": True, "spans": []},
    ]  # fmt: skip
    place = tmp_path / "edits.jsonl.gz"
    place.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    clean, changed, far = read(place)
    assert clean.spans == ()
    assert changed.spans == ((11, 12),)
    assert far.spans is None
    row = measured(changed)
    assert row is not None
    assert row.claims.tolist() == [1.0]
    assert row.words.sum() == 1.0
    assert row.typed == (2,)


def test_a_context_is_in_one_fold() -> None:
    sources = [sha256_hex(str(n).encode()) for n in range(50)]
    folds = [fold_of(source, 5) for source in sources]
    assert set(folds) == set(range(5))
    assert folds == [fold_of(source, 5) for source in sources]


def test_two_runs_give_the_same_file_and_folds(tmp_path: Path) -> None:
    rows = []
    for number in range(60):
        context = TEXT.replace("4,200", f"{number + 2},100").replace("1951", str(1900 + number))
        for wrong in (False, True):
            answer = f"The bridge was opened in {1900 + number + 7 * wrong}. It carries cars."
            at = answer.index("19")
            spans = [{"start": at, "end": at + 4}] if wrong else []
            rows.append({"task": "QA", "context": context, "answer": answer, "question": None,
                         "hallucinated": wrong, "spans": spans})  # fmt: skip
    (tmp_path / "ragtruth_half.jsonl.gz").write_bytes(
        gzip.compress("\n".join(map(json.dumps, rows)).encode())
    )
    given = ["--data", str(tmp_path), "--sets", "ragtruth_half"]
    main([*given, "--out", str(tmp_path / "one")])
    main([*given, "--out", str(tmp_path / "two")])
    content = (tmp_path / "one" / "features.json").read_bytes()
    assert content == (tmp_path / "two" / "features.json").read_bytes()
    assert Fitted.of(content).name == "features@1"
    assert card(content).files == {"features.json": sha256_hex(content)}
    main([*given, "--out", str(tmp_path / "folds"), "--folds", "2"])
    assigned = json.loads((tmp_path / "folds" / "folds.json").read_text())
    assert set(assigned.values()) == {0, 1}
    assert (tmp_path / "folds" / "fold-0.json").read_bytes() != (
        tmp_path / "folds" / "fold-1.json"
    ).read_bytes()
