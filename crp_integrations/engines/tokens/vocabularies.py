"""Vocabularies: where they are on this machine, and which model uses which.

Packages are located without being imported, a file is used only if its hash is the published
one, and nothing is ever downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from crp_integrations.engines.tokens.chat_formats import (
    CHATML,
    CLAUDE,
    CLAUDE_TEXT,
    DEEPSEEK_CHAT,
    GENERIC,
    HARMONY,
    LLAMA,
    MISTRAL,
    MISTRAL_V1,
    OPENAI,
    ChatFormat,
)
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import Exactness


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A published vocabulary file.

    Attributes:
        name: the name under which tokens are counted.
        sha256: published hash, 64 hexadecimal digits.
        places: packages with the path in each, in the order of search.
        cached: file name in a tiktoken cache folder, empty if it is never there.
        pattern: name of the splitting pattern for a `.tiktoken` file, empty for other kinds.
    """

    name: str
    sha256: str
    places: tuple[tuple[str, str], ...]
    cached: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class FoundVocabulary:
    """A vocabulary's bytes with verified hash, and the package or folder they were found in."""

    data: bytes
    where: str


_LITELLM = "litellm_core_utils/tokenizers"
_LLAMA_INDEX = "core/_static/tiktoken_cache"
_MISTRAL = "data"


def _openai(name: str, sha256: str, cached: str) -> Vocabulary:
    places = (("litellm", f"{_LITELLM}/{cached}"), ("llama_index", f"{_LLAMA_INDEX}/{cached}"))
    return Vocabulary(name, sha256, places, cached, name.removesuffix("_base"))


def _mistral(name: str, sha256: str, *files: str) -> Vocabulary:
    places = tuple(("mistral_common", f"{_MISTRAL}/{file}") for file in files)
    return Vocabulary(name, sha256, places)


# The names in a tiktoken cache folder are the SHA-1 of the file's URL.
CL100K = _openai(
    "cl100k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
)
O200K = _openai(
    "o200k_base",
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "fb374d419588a4632f3f557e76b4b70aebbca790",
)
# From Meta's own package, which a user may install. Llama 4 splits words as o200k does.
LLAMA_3 = Vocabulary(
    "llama-3",
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
    (("llama_models", "llama3/tokenizer.model"),),
    pattern="llama-3",
)
LLAMA_4 = Vocabulary(
    "llama-4",
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed",
    (("llama_models", "llama4/tokenizer.model"),),
    pattern="o200k",
)
# From Alibaba's own package, which a user may install; Qwen 1 to Qwen 3 share these merges.
QWEN = Vocabulary(
    "qwen",
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
    (("dashscope", "resources/qwen.tiktoken"),),
    pattern="qwen",
)
CLAUDE_2 = Vocabulary(
    "claude-2",
    "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
    (("litellm", f"{_LITELLM}/anthropic_tokenizer.json"),),
)
# LiteLLM has it from version 1.109 on.
DEEPSEEK = Vocabulary(
    "deepseek-v3",
    "4607b3d1929c5ca263a81d7153c6d6ecdbc71c9e933c0fb2df2abf181bf6df61",
    (("litellm", f"{_LITELLM}/deepseek_tokenizer.json"),),
)
MISTRAL_V1_PIECES = _mistral(
    "mistral-v1",
    "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
    "tokenizer.model.v1",
)
MISTRAL_V2 = _mistral(
    "mistral-v2",
    "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89",
    "mistral_instruct_tokenizer_240216.model.v2",
)
MISTRAL_V3 = _mistral(
    "mistral-v3",
    "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
    "mistral_instruct_tokenizer_240323.model.v3",
)
MISTRAL_V7 = _mistral(
    "mistral-v7",
    "1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a",
    "mistral_instruct_tokenizer_241114.model.v7",
    "mistral_instruct_tokenizer_241114.model.v7m1",
)
TEKKEN_0718 = _mistral(
    "tekken-240718",
    "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
    "tekken_240718.json",
)
TEKKEN_0911 = _mistral(
    "tekken-240911",
    "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
    "tekken_240911.json",
)

# Vocabularies by whose hash a user's `.tiktoken` file is recognised.
WITH_PATTERN = (CL100K, O200K, LLAMA_3, LLAMA_4, QWEN)


def find_vocabulary(vocabulary: Vocabulary, folders: Sequence[Path] = ()) -> FoundVocabulary | None:
    """Find and read a vocabulary; None if it is not on this machine or was altered."""
    for path, where in _paths(vocabulary, folders):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if sha256_hex(data) == vocabulary.sha256:
            return FoundVocabulary(data, where)
    return None


def _paths(vocabulary: Vocabulary, folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    if vocabulary.cached:
        for folder in folders:
            yield folder / vocabulary.cached, "a cache folder"
    for package, file in vocabulary.places:
        for root in _roots(package):
            yield root / file, package


def _roots(package: str) -> list[Path]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


# The first two are the patterns of tiktoken's own `tiktoken_ext.openai_public`, whose functions
# cannot be called without a download; a test compares their counts.
_CL100K = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
_SUFFIX = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
_O200K = "|".join(
    (
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"""
        + _SUFFIX,
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"""
        + _SUFFIX,
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    )
)


def _word_pattern(digits: str) -> str:
    """The pattern of Meta's `llama_models` and Alibaba's `dashscope`, which differ in digits."""
    return (
        r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"""
        + digits
        + r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    )


PATTERNS: Mapping[str, str] = {
    "cl100k": _CL100K,
    "o200k": _O200K,
    "llama-3": _word_pattern(r"\p{N}{1,3}"),
    "qwen": _word_pattern(r"\p{N}"),
}

# Patterns of vocabularies whose texts are first normalised to Unicode's composed form (NFC).
COMPOSED = frozenset({"qwen"})


# Factors in thousandths; cl100k × 1.45 was at least the true count for every measured family.
UNKNOWN_PER_MILLE = 1450
CLAUDE_3_PER_MILLE = 1180
CLAUDE_NEWEST_PER_MILLE = 1500


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """How the tokens of a family of models are counted.

    Attributes:
        name: common name of the family.
        pattern: regular expression for the beginning of a model's name, without provider.
        vocabulary: the vocabulary to count with.
        chat: the format around its messages and tools.
        exactness: whether the vocabulary is the models' own, a related one, or for an estimate.
        per_mille: factor of an estimate, in thousandths.
    """

    name: str
    pattern: str
    vocabulary: Vocabulary
    chat: ChatFormat
    exactness: Exactness = Exactness.EXACT
    per_mille: int = 1000

    def matches(self, model: str) -> bool:
        """Whether a name without provider, in lower case, belongs to the family."""
        return re.match(f"(?:{self.pattern})(?![a-z0-9])", model) is not None


def _related(name: str, pattern: str, vocabulary: Vocabulary, chat: ChatFormat) -> ModelFamily:
    return ModelFamily(name, pattern, vocabulary, chat, Exactness.FAMILY)


def _estimate(
    name: str, pattern: str, vocabulary: Vocabulary, per_mille: int, chat: ChatFormat
) -> ModelFamily:
    return ModelFamily(name, pattern, vocabulary, chat, Exactness.ESTIMATE, per_mille)


_OPENAI_O200K = r"(ft:)?(gpt-4o|chatgpt-4o|gpt-4\.[15]|gpt-5(\.\d+)?|o[134])"
_NEMO = r"open-mistral-nemo|mistral-nemo|ministral-8b-2410|mistral-small-2409"
_NEWER_MISTRAL = (
    r"ministral|pixtral|magistral|devstral|voxtral"
    r"|mistral-medium-(3|2[5-9])\d*|(mistral-(small|large)|codestral)-(3|2[5-9])\d*"
)
_MISTRAL_2 = r"mistral-(small|large)-2402|mistral-(tiny|small)-2312"
_MISTRAL_3 = (
    r"open-mixtral-8x22b|codestral-(2405|mamba)|mistral-(large|tiny)-2407"
    r"|mistral-7b-(instruct-)?v0\.3|mixtral-8x22b-instruct-v0\.1"
)
_MISTRAL_1 = r"mistral-medium-2312|mistral-7b-(instruct-)?v0\.[12]|mixtral-8x7b-(instruct-)?v0\.1"
_QWEN_OPEN = r"(qwen-?(1\.5|2(\.5)?|3)(-coder)?-\d+(\.\d+)?b|qwen-(1_8|7|14|72)b|qwq-32b)"

FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily("OpenAI", _OPENAI_O200K, O200K, OPENAI),
    ModelFamily("gpt-oss", r"gpt-oss", O200K, HARMONY),
    ModelFamily("OpenAI", r"codex-mini", O200K, OPENAI),
    ModelFamily("OpenAI", r"(ft:)?(gpt-4|gpt-3\.5|gpt-35)", CL100K, OPENAI),
    ModelFamily("OpenAI", r"(ft:)?(davinci-002|babbage-002)", CL100K, OPENAI),
    ModelFamily("OpenAI", r"text-embedding-(ada-002|3-small|3-large)", CL100K, OPENAI),
    _related("OpenAI", r"(ft:)?(gpt-\d+(\.\d+)?|o\d+)", O200K, OPENAI),
    ModelFamily("Claude 2", r"claude-(instant|v?[12])(\.\d+|-\d+)*", CLAUDE_2, CLAUDE_TEXT),
    _estimate("Claude 3 and 4", r"claude-3", O200K, CLAUDE_3_PER_MILLE, CLAUDE),
    _estimate(
        "Claude 3 and 4",
        r"claude-(opus|sonnet|haiku)-4([-.@][0-6])?([-@]\d{8})?(-v\d+(:\d+)?|-latest)?$",
        O200K,
        CLAUDE_3_PER_MILLE,
        CLAUDE,
    ),
    _estimate("the newest Claude", r"claude", O200K, CLAUDE_NEWEST_PER_MILLE, CLAUDE),
    _estimate("Gemini", r"gemini|gemma", CL100K, UNKNOWN_PER_MILLE, GENERIC),
    ModelFamily(
        "DeepSeek",
        r"deepseek-(chat|reasoner)|deepseek[-_.]?(chat[-_.])?v3",
        DEEPSEEK,
        DEEPSEEK_CHAT,
    ),
    _related("DeepSeek", r"deepseek", DEEPSEEK, DEEPSEEK_CHAT),
    ModelFamily("Llama 3", r"(meta-)?llama-?v?3([-.p]\d+)?", LLAMA_3, LLAMA),
    ModelFamily("Llama 4", r"(meta-)?llama-?v?4", LLAMA_4, LLAMA),
    ModelFamily("Qwen", _QWEN_OPEN, QWEN, CHATML),
    # Newer vocabularies are larger, so counts with these merges are more likely too high.
    _related("Qwen", r"qwen[\d.]*|qwq|qvq", QWEN, CHATML),
    ModelFamily("Mistral", _MISTRAL_1, MISTRAL_V1_PIECES, MISTRAL_V1),
    ModelFamily("Mistral", _MISTRAL_2, MISTRAL_V2, MISTRAL),
    ModelFamily("Mistral", _MISTRAL_3, MISTRAL_V3, MISTRAL),
    ModelFamily("Mistral", r"mistral-large-2411", MISTRAL_V7, MISTRAL),
    ModelFamily("Mistral", _NEMO, TEKKEN_0718, MISTRAL),
    ModelFamily("Mistral", r"pixtral-12b-2409|pixtral-large-2411", TEKKEN_0911, MISTRAL),
    _related("Mistral", _NEWER_MISTRAL, TEKKEN_0911, MISTRAL),
    # Mistral's older vocabularies give more tokens, so they do not undercount for newer models.
    _related("Mistral", r"(open-)?(mistral|mixtral)|codestral|mathstral", MISTRAL_V3, MISTRAL_V1),
)

# Providers that use a model's real name. With others, such as Azure deployments, a user may
# have chosen a name that looks like a known model's.
_PLAIN_PROVIDERS = frozenset(
    (
        "anthropic bedrock cerebras codestral converse dashscope deepinfra deepseek deepseek-ai "
        "fireworks_ai github groq invoke meta-llama meta_llama mistral mistralai openai "
        "openrouter qwen responses text-completion-openai together_ai vertex_ai"
    ).split()
)
_VENDOR = re.compile(
    r"(?:(?:us|eu|apac|jp|au|global)\.)?(?:anthropic|deepseek|meta|mistral|openai|qwen)\."
)


def family_of(model: str) -> tuple[ModelFamily | None, bool]:
    """The family of a model's name, and whether the name is certainly the model's real one."""
    *providers, name = model.strip().lower().split("/")
    name = _VENDOR.sub("", name, count=1)
    sure = all(provider in _PLAIN_PROVIDERS for provider in providers)
    return next((family for family in FAMILIES if family.matches(name)), None), sure
