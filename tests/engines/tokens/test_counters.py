"""Token counters against the libraries themselves."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tiktoken
import tiktoken.load
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext import openai_public  # type: ignore[import-untyped]

from crp_integrations.engines.tokens import counter_for, counters, vocabularies
from crp_integrations.engines.tokens.encoders import short_runs
from crp_integrations.engines.tokens.vocabularies import DEEPSEEK, family_of, find_vocabulary
from crp_integrations.envelope.budget import LazyCounter
from crp_integrations.errors import ConfigError, MissingExtra
from crp_integrations.messages import Message, ToolCall
from crp_integrations.ports import TokenCounter
from crp_integrations.vocabulary import Exactness
from tests.laws.test_envelope_laws import CORPUS

TEXTS = [
    *CORPUS.values(),
    "",
    " ",
    "\n\n\n   x",
    "<|endoftext|> is plain here, and so is <|im_start|>",
    "naïve café 🙂👩‍👩‍👧 ​",
    "[1] a fact\n\n[2] another\n\n",
    "a" * 5000,
]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tiktoken.Encoding]:
    """Tiktoken's own encodings, with their files read from an installed wheel."""

    def read(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        vocabulary = next(one for one in vocabularies.WITH_PATTERN if f"/{one.name}." in url)
        found = vocabularies.find_vocabulary(vocabulary)
        assert found is not None and vocabulary.sha256 == expected_hash
        monkeypatch.setattr(tiktoken.load, "read_file_cached", lambda *_: found.data)
        return tiktoken.load.load_tiktoken_bpe(url, expected_hash)

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", read)
    return lambda name: tiktoken.Encoding(**getattr(openai_public, name)())


@pytest.mark.requirement("CARD-10", "003-10.1-2")
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("o3", "o200k_base"),
    ],
)
def test_openai_models_count_as_tiktoken_does(
    model: str, name: str, library: Callable[[str], tiktoken.Encoding]
) -> None:
    encoding = library(name)
    assert tiktoken.encoding_name_for_model(model) == name
    counter = counter_for(model)
    assert counter.exactness is Exactness.EXACT
    expected = [len(encoding.encode(text, disallowed_special=())) for text in TEXTS]
    assert counter.count_many(TEXTS) == expected
    assert [counter.count(text) for text in TEXTS] == expected


@pytest.mark.requirement("CARD-10")
def test_known_counts_of_openai_models() -> None:
    # From OpenAI's cookbook, "How to count tokens with tiktoken".
    assert counter_for("gpt-4").count("antidisestablishmentarianism") == 6
    assert counter_for("gpt-4").count("2 + 2 = 4") == 7
    assert counter_for("gpt-4").count("お誕生日おめでとう") == 9
    assert counter_for("gpt-4o").count("antidisestablishmentarianism") == 6
    assert counter_for("gpt-4o").count("2 + 2 = 4") == 7
    assert counter_for("gpt-4o").count("お誕生日おめでとう") == 8


@pytest.mark.requirement("003-10.1-2", "003-10.1-3", "003-10.1-4")
@pytest.mark.parametrize(
    ("model", "exactness", "source"),
    [
        ("gpt-4o-mini", "exact", "o200k_base"),
        ("openai/gpt-4.1-nano", "exact", "o200k_base"),
        ("openrouter/openai/gpt-5", "exact", "o200k_base"),
        ("gpt-5.1-codex", "exact", "o200k_base"),
        ("o4-mini", "exact", "o200k_base"),
        ("ft:gpt-4o-2024-08-06:org::id", "exact", "o200k_base"),
        ("groq/openai/gpt-oss-120b", "exact", "o200k_base"),
        ("gpt-4-turbo", "exact", "cl100k_base"),
        ("gpt-3.5-turbo-0125", "exact", "cl100k_base"),
        ("extractive", "exact", "cl100k_base"),
        ("extractive/best", "exact", "cl100k_base"),
        ("azure/gpt-4o", "family", "o200k_base"),
        ("azure/our-deployment", "estimate", "× 1.45"),
        ("gpt-7", "family", "o200k_base"),
        ("ollama/gpt-4o", "family", "o200k_base"),
        ("claude-2.1", "exact", "claude-2"),
        ("anthropic/claude-3-5-sonnet-20241022", "estimate", "× 1.18"),
        ("claude-sonnet-4-20250514", "estimate", "× 1.18"),
        ("claude-opus-4-1-20250805", "estimate", "× 1.18"),
        ("bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", "estimate", "× 1.18"),
        ("vertex_ai/claude-opus-4@20250514", "estimate", "× 1.18"),
        ("claude-opus-4-8", "estimate", "× 1.50"),
        ("claude-next", "estimate", "× 1.50"),
        ("mistral/mistral-large-2411", "exact", "mistral-v7"),
        ("mistral/open-mixtral-8x22b", "exact", "mistral-v3"),
        ("mistral/open-mistral-nemo", "exact", "tekken-240718"),
        ("openrouter/mistralai/mistral-nemo", "exact", "tekken-240718"),
        ("mistral/mistral-large-latest", "family", "mistral-v3"),
        ("mistral/mistral-small-2506", "family", "tekken-240911"),
        ("mistral/magistral-medium-2507", "family", "tekken-240911"),
        ("gemini/gemini-2.5-pro", "estimate", "× 1.45"),
        ("mistral/mistral-medium-2312", "exact", "mistral-v1"),
        ("mistral/mistral-small-2409", "exact", "tekken-240718"),
        ("gemini/gemma-3-27b-it", "estimate", "× 1.45 for Gemini"),
        ("ollama/phi4", "estimate", "× 1.45 for an unknown model"),
        ("gpt-4ever", "estimate", "× 1.45"),
        ("", "estimate", "× 1.45"),
    ],
)
def test_every_count_says_how_far_it_can_be_trusted(
    model: str, exactness: str, source: str
) -> None:
    counter = counter_for(model)
    assert isinstance(counter, TokenCounter)
    assert counter.exactness.value == exactness
    assert source in counter.source


@pytest.mark.requirement("003-10.1-3")
def test_without_any_vocabulary_counts_are_an_estimate_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "_made", {})
    monkeypatch.setattr(vocabularies, "find_spec", lambda name: None)
    for model in ("gpt-4o", "claude-3-opus", "mistral-large-2411", "extractive", "unheard-of"):
        counter = counter_for(model)
        assert counter.exactness is Exactness.ESTIMATE
        assert counter.identity == "characters@1"


def test_a_vocabulary_that_was_altered_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = vocabularies.find_vocabulary(vocabularies.CL100K)
    assert found is not None
    bad, good = tmp_path / "bad", tmp_path / "good"
    for folder, data in ((bad, found.data[:-1] + b"1"), (good, found.data)):
        folder.mkdir()
        (folder / vocabularies.CL100K.cached).write_bytes(data)
    monkeypatch.setattr(vocabularies, "find_spec", lambda name: None)
    assert vocabularies.find_vocabulary(vocabularies.CL100K, [bad]) is None
    assert vocabularies.find_vocabulary(
        vocabularies.CL100K, [bad, good]
    ) == vocabularies.FoundVocabulary(found.data, "a cache folder")
    monkeypatch.setattr(counters, "_made", {})
    assert counter_for("gpt-4", folders=[good]).exactness is Exactness.EXACT
    assert counter_for("gpt-4", folders=[bad]).exactness is Exactness.ESTIMATE


def test_finding_vocabularies_imports_no_package_and_sets_no_variable() -> None:
    code = (
        "import os, sys; before = dict(os.environ)\n"
        "from crp_integrations.engines.tokens import counter_for\n"
        "assert counter_for('gpt-4o').exactness == 'exact'\n"
        "heavy = {'litellm', 'llama_index', 'mistral_common', 'transformers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert dict(os.environ) == before\n"
    )
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_identities_hold_the_hash_and_tell_counters_apart(tmp_path: Path) -> None:
    models = ["gpt-4o", "gpt-4", "claude-2", "claude-3-opus", "claude-next", "unheard-of"]
    identities = {counter_for(model).identity for model in models}
    assert len(identities) == len(models)
    assert all(re.search(r"[0-9a-f]{16}", identity) for identity in identities)


# --- files of the user ---------------------------------------------------------------------


def sentencepiece_model(folder: Path) -> Path:
    path = folder / "own.model"
    written = io.BytesIO()
    lines = [text for text in CORPUS.values() for _ in range(3)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        vocab_size=420,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
    )
    path.write_bytes(written.getvalue())
    return path


def huggingface_model(folder: Path) -> Path:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["[UNK]", "<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS.values(), trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    # Cutting and padding as some published files have them.
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.mark.requirement("CARD-11", "003-10.1-2")
def test_a_sentencepiece_file_counts_as_the_library_does(tmp_path: Path) -> None:
    path = sentencepiece_model(tmp_path)
    counter = counter_for("some/llama", tokenizer_file=str(path))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    assert counter.exactness is Exactness.EXACT
    assert counter.source == "file own.model"
    assert counter.count_many(TEXTS) == [len(processor.encode(text)) for text in TEXTS]


@pytest.mark.requirement("CARD-12", "003-10.1-2")
def test_a_hugging_face_file_counts_as_the_library_does(tmp_path: Path) -> None:
    path = huggingface_model(tmp_path)
    counter = counter_for("some/qwen", tokenizer_file=str(path))
    library = tokenizers.Tokenizer.from_file(str(path))
    library.no_truncation()
    library.no_padding()
    assert counter.exactness is Exactness.EXACT
    expected = [len(library.encode(text, add_special_tokens=False).ids) for text in TEXTS]
    assert counter.count_many(TEXTS) == expected
    assert max(expected) > 100
    # Markers of the model in a stranger's text are text.
    assert counter.count("<s>") > 1


@pytest.mark.requirement("CARD-11", "CARD-12", "003-10.1-2")
@pytest.mark.parametrize(
    ("model", "file"),
    [
        ("mistral-medium-2312", "tokenizer.model.v1"),
        ("mistral-large-2411", "mistral_instruct_tokenizer_241114.model.v7"),
        ("open-mixtral-8x22b", "mistral_instruct_tokenizer_240323.model.v3"),
        ("mistral-small-2402", "mistral_instruct_tokenizer_240216.model.v2"),
        ("open-mistral-nemo", "tekken_240718.json"),
        ("pixtral-12b-2409", "tekken_240911.json"),
    ],
)
def test_mistral_models_count_as_mistrals_own_library_does(model: str, file: str) -> None:
    pytest.importorskip("mistral_common")
    from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    path = vocabularies._roots("mistral_common")[0] / "data" / file
    library: Any = (
        Tekkenizer.from_file(path) if file.endswith("json") else SentencePieceTokenizer(path)
    )
    expected = [len(library.encode(text, bos=False, eos=False)) for text in TEXTS]
    for counter in (counter_for(f"mistral/{model}"), counter_for("x", tokenizer_file=str(path))):
        assert counter.exactness is Exactness.EXACT
        assert counter.count_many(TEXTS) == expected


@pytest.mark.requirement("CARD-12")
def test_claude_2_counts_with_its_published_tokenizer() -> None:
    found = vocabularies.find_vocabulary(vocabularies.CLAUDE_2)
    assert found is not None
    library = tokenizers.Tokenizer.from_buffer(found.data)
    counter = counter_for("claude-2")
    plain = [text for text in TEXTS if "<|" not in text]
    assert counter.count_many(plain) == [
        len(library.encode(text, add_special_tokens=False).ids) for text in plain
    ]


def test_a_tiktoken_file_is_exact_when_its_pattern_is_known(tmp_path: Path) -> None:
    found = vocabularies.find_vocabulary(vocabularies.O200K)
    assert found is not None
    path = tmp_path / "o200k.tiktoken"
    path.write_bytes(found.data)
    counter = counter_for("any", tokenizer_file=str(path))
    assert counter.exactness is Exactness.EXACT
    assert counter.count_many(TEXTS) == counter_for("gpt-4o").count_many(TEXTS)
    # A file of the same format whose pattern nobody knows, named as Llama 3 names its own.
    other = tmp_path / "tokenizer.model"
    other.write_bytes(b"\n".join(found.data.splitlines()[:2000]))
    counter = counter_for("any", tokenizer_file=str(other))
    assert counter.exactness is Exactness.FAMILY
    assert counter.count(CORPUS["English"]) > counter_for("gpt-4o").count(CORPUS["English"])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokenizer.model", b"\x00\x01nonsense"),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b'{"model": 1}'),
        ("tekken.json", b'{"vocab": [{"token_bytes": "YQ==", "rank": 0}]}'),
        ("own.tiktoken", b"IQ== 0\nIg== 1\n"),
        ("own.tiktoken", b"IQ== 0\nnot a rank\n"),
        ("notes.txt", b"just some words"),
        ("empty.json", b""),
    ],
)
def test_files_that_are_no_tokenizers_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"wanted"):
        counter_for("any", tokenizer_file=str(path))


def test_without_sentencepiece_the_extra_is_named_and_names_fall_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = sentencepiece_model(tmp_path)
    monkeypatch.setattr(counters, "_made", {})
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MissingExtra, match=r"crp-integrations\[tokenizers\]"):
        counter_for("any", tokenizer_file=str(path))
    assert counter_for("mistral-large-2411").exactness is Exactness.ESTIMATE


# --- odd texts -----------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4"])
@pytest.mark.parametrize("character", [" ", "\n", "\t", "a", "中", "!", "1", "\u3000"])
def test_endless_runs_are_counted_whole(model: str, character: str) -> None:
    counter = counter_for(model)
    single = counter.count(character * 10_000)
    whole = counter.count(character * 400_000)
    assert 40 * single - 400 <= whole <= 40 * single + 400


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(" \n\u00a0ab"), st.integers(1, 60_000)), max_size=6))
def test_cutting_a_text_loses_nothing(runs: list[tuple[str, int]]) -> None:
    text = "".join(character * count for character, count in runs)
    parts = short_runs(text)
    assert "".join(parts) == text
    assert not any(re.search(r"\s{20001}", part) for part in parts)


# --- conversations -------------------------------------------------------------------------


def test_a_conversation_counts_as_openais_cookbook_does() -> None:
    counter = counter_for("gpt-4o")
    conversation = [
        Message(role="system", content="You are a helpful assistant."),
        Message(role="user", name="ada", content="What is the tier?"),
    ]
    expected = 3
    for message in conversation:
        expected += 3 + counter.count(message.role) + counter.count(message.content)
    expected += 1 + counter.count("ada")
    assert counter.count_messages(conversation) == expected
    assert counter.count_messages([]) == 3


def test_tool_calls_are_counted() -> None:
    call = ToolCall(id="1", name="search", arguments=json.dumps({"q": "the tier of quality"}))
    for model in ("gpt-4o", "claude-2", "claude-3-opus", "mistral-large-2411"):
        counter = counter_for(model)
        bare = counter.count_messages([Message(role="assistant")])
        full = counter.count_messages([Message(role="assistant", tool_calls=(call,))])
        assert full >= bare + counter.count(call.name) + counter.count(call.arguments)


@pytest.mark.parametrize(
    ("model", "exactness"),
    [
        ("deepseek/deepseek-chat", "exact"),
        ("deepseek/deepseek-reasoner", "exact"),
        ("openrouter/deepseek/deepseek-v3.2", "exact"),
        ("deepseek/deepseek-coder", "family"),
    ],
)
def test_deepseek_is_counted_with_its_vocabulary_where_litellm_carries_it(
    model: str, exactness: str
) -> None:
    # LiteLLM has the file from 1.109 on; before that the count says that it is an estimate.
    family, _ = family_of(model)
    assert family is not None
    assert (family.name, family.exactness.value) == ("DeepSeek", exactness)
    counter = counter_for(model)
    if find_vocabulary(DEEPSEEK) is None:
        assert (counter.exactness.value, "for DeepSeek" in counter.source) == ("estimate", True)
    else:
        assert counter.exactness.value == exactness
        assert counter.source == "deepseek-v3 from litellm"


def test_a_later_counter_counts_as_the_one_that_it_makes_and_makes_it_once() -> None:
    made: list[TokenCounter] = []

    def make() -> TokenCounter:
        made.append(counter_for("gpt-4"))
        return made[-1]

    later = LazyCounter(make)
    assert made == []
    now = counter_for("gpt-4")
    assert [later.count(text) for text in TEXTS] == [now.count(text) for text in TEXTS]
    assert later.count_many(TEXTS) == now.count_many(TEXTS)
    said = [Message(role="user", content="How high is it?")]
    assert later.count_messages(said) == now.count_messages(said)
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    assert later.count_tools([tool]) == now.count_tools([tool]) > 0
    assert (later.identity, later.exactness, later.source) == (
        now.identity,
        now.exactness,
        now.source,
    )
    assert len(made) == 1
