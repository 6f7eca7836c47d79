"""What a verifier's files are compared with, and which window of a passage decides."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.engines.verifiers.lettuce import LettuceVerifier, pieces
from crp_integrations.engines.verifiers.model_catalogue import model_hash, pinned_files
from crp_integrations.engines.verifiers.pair_verifiers import (
    FAMILIES,
    NetworkVerifier,
    WindowScore,
    best,
    judgement,
    weakest,
)
from crp_integrations.errors import ConfigError, EngineError, MissingExtra

KINDS = [*(partial(NetworkVerifier, family) for family in FAMILIES), LettuceVerifier]
NOTHING = "sha256:" + "0" * 64
COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHARES = st.floats(0.0, 1.0)


def folder(root: Path) -> Path:
    made = root / "model"
    made.mkdir(parents=True)
    (made / "config.json").write_text('{"model_type": "bert"}')
    (made / "model.safetensors").write_bytes(b"weights")
    return made


def test_the_hash_is_of_the_files_that_decide(tmp_path: Path) -> None:
    made = folder(tmp_path)
    pin = model_hash(made)
    (made / "README.md").write_text("about")
    (made / "picture.png").write_bytes(b"")
    (made / ".cache").mkdir()
    (made / ".cache" / "x.py").write_text("")
    assert model_hash(made) == pin
    for name in ("tokenizer.json", "modeling.py", "spm.model", "below/code.py"):
        place = made / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("x")
        assert model_hash(made) != pin
        place.unlink()
    assert model_hash(made) == pin
    (made / "model.safetensors").rename(made / "other.safetensors")
    assert model_hash(made) != pin


@pytest.mark.requirement("005-21.1-3")
def test_only_the_wanted_files_are_accepted(tmp_path: Path) -> None:
    made = folder(tmp_path)
    found = pinned_files(made, model_hash(made), "v1")
    assert str(found) == f"model@v1+{model_hash(made)}"
    with pytest.raises(ConfigError, match=model_hash(made)):
        pinned_files(made, "")
    with pytest.raises(EngineError, match=f"have {model_hash(made)}, wanted {NOTHING}"):
        pinned_files(made, NOTHING)
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        pinned_files(made, "abc")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(EngineError, match="no file of a model"):
        pinned_files(empty, NOTHING)
    with pytest.raises(ConfigError, match="no model folder"):
        pinned_files(tmp_path / "absent", NOTHING)


@pytest.mark.parametrize("revision", ["", "main", "v1.0", COMMIT[:12], COMMIT.upper()])
def test_an_id_without_a_commit_is_refused(revision: str) -> None:
    with pytest.raises(ConfigError, match="40 hexadecimal digits"):
        pinned_files("owner/name", NOTHING, revision)
    with pytest.raises(ConfigError, match="no sha256"):
        pinned_files("owner/name", "", COMMIT)


class Hub:
    """Stands where `huggingface_hub` is: a cache, and what fetching gives."""

    def __init__(self, cached: Path | None, fetched: Path | None) -> None:
        self.cached, self.fetched = cached, fetched
        self.asked: list[tuple[str, str, bool]] = []

    def snapshot_download(
        self, name: str, *, revision: str, allow_patterns: list[str], local_files_only: bool = False
    ) -> str:
        self.asked.append((name, revision, local_files_only))
        found = self.cached if local_files_only else self.fetched
        if found is None:
            raise FileNotFoundError(name)
        return str(found)


def test_a_commit_is_fetched_only_when_it_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = folder(tmp_path), tmp_path / "part"
    part.mkdir()
    (part / "config.json").write_text("{}")
    for cached, calls in ((whole, 1), (part, 2), (None, 2)):
        hub = Hub(cached, whole)
        monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
        found = pinned_files("owner/name", model_hash(whole), COMMIT)
        assert str(found) == f"owner/name@{COMMIT}+{model_hash(whole)}"
        assert hub.asked == [("owner/name", COMMIT, True), ("owner/name", COMMIT, False)][:calls]
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(None, None))
    with pytest.raises(EngineError, match=r"huggingface_hub .*cannot be fetched"):
        pinned_files("owner/name", model_hash(whole), COMMIT)
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(None, part))
    with pytest.raises(EngineError, match="wanted"):
        pinned_files("owner/name", model_hash(whole), COMMIT)


@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_library_is_named_with_the_line_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    made = folder(tmp_path)
    for name in ("transformers", "torch", "lettucedetect"):
        monkeypatch.setitem(sys.modules, name, None)
    wanted = "lettucedetect" if kind is LettuceVerifier else "verifiers"
    with pytest.raises(MissingExtra, match=rf"crp-integrations\[{wanted}\]"):
        kind(made, sha256=model_hash(made))


@pytest.mark.requirement("005-21.1-3")
def test_a_wrong_hash_is_seen_before_any_library_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for number, kind in enumerate(KINDS):
        with pytest.raises(EngineError, match="wanted sha256:0000"):
            kind(folder(tmp_path / str(number)), sha256=NOTHING)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=4), st.integers(1, 20))
def test_pieces_hold_every_character(passages: list[str], longest: int) -> None:
    found = pieces(passages, longest)
    assert all(len(text) <= longest for _, text in found)
    for place, passage in enumerate(passages):
        mine = [text for at, text in found if at == place]
        rest = 0
        for text in mine:
            # Each piece begins at or before the end of what was covered.
            start = max(at for at in range(rest + 1) if passage[at : at + len(text)] == text)
            rest = max(rest, start + len(text))
        assert rest == len(passage)


@given(st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=6))
def test_the_window_that_decides(rows: list[tuple[float, float]]) -> None:
    seen = [WindowScore(e, (1.0 - e) * c, place) for place, (e, c) in enumerate(rows)]
    found = best(seen)
    assert found.entailment + found.contradiction + found.neutral == pytest.approx(1.0, abs=2e-6)
    chosen = seen[found.passage]
    assert found == judgement(chosen)
    if any(one.entailment >= 0.5 for one in seen):
        assert chosen.entailment == max(one.entailment for one in seen)
    elif any(one.contradiction >= 0.5 for one in seen):
        assert chosen.contradiction == max(one.contradiction for one in seen)
    else:
        assert chosen.entailment == max(one.entailment for one in seen)
    pieces_ = [judgement(one) for one in seen]
    assert weakest(pieces_).entailment == min(one.entailment for one in pieces_)


@pytest.mark.parametrize("row", [(0.7, 0.6), (-0.1, 0.0), (float("nan"), 0.0), (0.0, float("nan"))])
def test_numbers_that_are_no_probabilities_are_refused(row: tuple[float, float]) -> None:
    with pytest.raises(EngineError, match="probabilities"):
        judgement(WindowScore(*row, 0))
