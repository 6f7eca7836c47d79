"""Which vocabulary a name stands for, and the packages of Meta and Alibaba that users install."""

from __future__ import annotations

import importlib
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.engines.tokens import counter_for, counters, vocabularies
from crp_integrations.engines.tokens.vocabularies import (
    FAMILIES,
    LLAMA_3,
    LLAMA_4,
    QWEN,
    Vocabulary,
    family_of,
)
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import Exactness
from tests.laws.samples import SAMPLES

PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.mark.requirement("003-10.1-2")
@pytest.mark.parametrize(
    ("model", "vocabulary", "exactness", "sure"),
    [
        ("groq/llama-3.3-70b-versatile", "llama-3", "exact", True),
        ("together_ai/meta-llama/Llama-3.1-8B-Instruct-Turbo", "llama-3", "exact", True),
        ("bedrock/meta.llama3-1-70b-instruct-v1:0", "llama-3", "exact", True),
        ("meta_llama/Llama-4-Maverick-17B", "llama-4", "exact", True),
        ("ollama/llama3.1", "llama-3", "exact", False),
        ("openrouter/qwen/qwen-2.5-72b-instruct", "qwen", "exact", True),
        ("deepinfra/Qwen/Qwen3-32B", "qwen", "exact", True),
        ("qwen2.5-coder-7b", "qwen", "exact", True),
        ("dashscope/qwen-max", "qwen", "family", True),
        ("dashscope/qwen3.5-72b", "qwen", "family", True),
        ("qwen3.5-plus", "qwen", "family", True),
        ("mistralai/mixtral-8x7b-instruct-v0.1", "mistral-v1", "exact", True),
        ("mistralai/mistral-7b-instruct-v0.3", "mistral-v3", "exact", True),
        ("gemini/gemini-2.5-pro", "cl100k_base", "estimate", False),
        ("vertex_ai/gemini-2.5-flash", "cl100k_base", "estimate", True),
    ],
)
def test_names_and_what_they_stand_for(
    model: str, vocabulary: str, exactness: str, sure: bool
) -> None:
    family, known = family_of(model)
    assert family is not None
    assert (family.vocabulary.name, family.exactness.value, known) == (vocabulary, exactness, sure)


# --- packages that a user installs -----------------------------------------------------------


Install = Callable[[Vocabulary, bytes], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Puts bytes where a package has its vocabulary, and takes their hash for the published one."""

    def put(vocabulary: Vocabulary, data: bytes) -> None:
        (package, file) = vocabulary.places[0]
        path = tmp_path / package / file
        path.parent.mkdir(parents=True)
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('imported')\n")
        path.write_bytes(data)
        here = replace(vocabulary, sha256=sha256_hex(data))
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        monkeypatch.setattr(counters, "_made", {})
        monkeypatch.setattr(
            vocabularies,
            "FAMILIES",
            tuple(
                replace(one, vocabulary=here) if one.vocabulary is vocabulary else one
                for one in FAMILIES
            ),
        )

    return put


def merges() -> bytes:
    """The first merges of cl100k: a real vocabulary, though a small one."""
    found = vocabularies.find_vocabulary(vocabularies.CL100K)
    assert found is not None
    return b"\n".join(found.data.splitlines()[:4000])


@pytest.mark.requirement("003-10.1-2")
@pytest.mark.parametrize(
    ("vocabulary", "model", "digits"),
    [
        (LLAMA_3, "groq/llama-3.1-8b-instant", [3, 3, 1]),
        (LLAMA_4, "groq/llama-4-scout", [3, 3, 1]),
        (QWEN, "deepinfra/qwen2.5-7b-instruct", [1] * 7),
    ],
    ids=["llama-3", "llama-4", "qwen"],
)
def test_an_installed_package_makes_its_family_exact(
    vocabulary: Vocabulary, model: str, digits: list[int], install: Install
) -> None:
    install(vocabulary, merges())
    counter = counter_for(model)
    assert counter.exactness is Exactness.EXACT
    assert counter.source == f"tiktoken {vocabulary.name} from {vocabulary.places[0][0]}"
    # Digits stand in groups as the family splits them: each group is counted on its own.
    groups = ["1234567"[sum(digits[:n]) : sum(digits[: n + 1])] for n in range(len(digits))]
    assert counter.count("1234567") == sum(counter.count(group) for group in groups)


def test_an_altered_package_is_not_believed(install: Install, tmp_path: Path) -> None:
    install(LLAMA_3, merges())
    package, file = LLAMA_3.places[0]
    (tmp_path / package / file).write_bytes(merges() + b"\n")
    counter = counter_for("groq/llama-3.1-8b-instant")
    assert counter.exactness is Exactness.ESTIMATE
    assert "× 1.45 for Llama 3" in counter.source


def test_qwen_counts_the_composed_form(install: Install) -> None:
    install(QWEN, merges())
    counter = counter_for("qwen2.5-7b-instruct")
    for text in ("Café Zürich", "각하", "Việt Nam"):
        composed, apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
        assert composed != apart
        assert counter.count(composed) == counter.count(apart)


def test_a_llama_4_file_of_the_user_is_split_as_o200k(tmp_path: Path) -> None:
    # A user's own copy is known by its hash; here o200k stands in, which shares the pattern.
    found = vocabularies.find_vocabulary(vocabularies.O200K)
    assert found is not None
    assert LLAMA_4.pattern == vocabularies.O200K.pattern
    path = tmp_path / "tokenizer.model"
    path.write_bytes(found.data)
    counter = counter_for("ollama/llama4", tokenizer_file=str(path))
    assert counter.exactness is Exactness.EXACT
    assert counter.count_many(SAMPLES) == counter_for("gpt-4o").count_many(SAMPLES)


@pytest.mark.requirement("003-10.1-2")
@pytest.mark.parametrize(
    ("model", "module"),
    [
        ("llama-3.1-8b-instruct", "llama_models.llama3.tokenizer"),
        ("llama-4-scout", "llama_models.llama4.tokenizer"),
    ],
)
def test_llama_counts_as_metas_own_package_does(model: str, module: str) -> None:
    library = pytest.importorskip(module).Tokenizer.get_instance()
    counter = counter_for(model)
    assert counter.exactness is Exactness.EXACT
    for text in SAMPLES:
        assert counter.count(text) == len(library.encode(text, bos=False, eos=False))


@pytest.mark.requirement("003-10.1-2")
def test_qwen_counts_as_alibabas_own_package_does() -> None:
    library = pytest.importorskip("dashscope.tokenizers").get_tokenizer("qwen-7b-chat")
    counter = counter_for("qwen2.5-7b-instruct")
    assert counter.exactness is Exactness.EXACT
    for text in SAMPLES:
        assert counter.count(text) == len(library.encode(text, allowed_special=set()))


# --- estimates -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", ["gpt-4", "gpt-4o", "claude-2", "mistral-large-2411", "open-mistral-nemo"]
)
def test_the_estimate_for_unknown_models_covers_the_known_families(model: str) -> None:
    counter, unknown = counter_for(model), counter_for("unheard-of")
    for text in SAMPLES:
        assert counter.count(text) <= unknown.count(text)


@settings(max_examples=40)
@given(PLAIN, PLAIN)
def test_one_vocabulary_serves_every_exactness(left: str, right: str) -> None:
    exact, related, scaled = map(counter_for, ("gpt-4o", "azure/gpt-4o", "claude-3-opus"))
    assert exact.identity == related.identity
    assert exact.count(left + right) == related.count(left + right)
    assert scaled.count(left) == -(-exact.count(left) * 118 // 100)
