"""Which tokenizer a model's name stands for: one table, first match wins."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
from crp_integrations.engines.tokens.vocabulary_files import (
    CL100K,
    CLAUDE_2,
    DEEPSEEK,
    LLAMA_3,
    LLAMA_4,
    MISTRAL_V2,
    MISTRAL_V3,
    MISTRAL_V7,
    O200K,
    P50K,
    QWEN,
    TEKKEN_0718,
    TEKKEN_0911,
    Vocabulary,
)
from crp_integrations.engines.tokens.vocabulary_files import MISTRAL_V1 as MISTRAL_V1_PIECES
from crp_integrations.vocabulary import Exactness

# Factors in thousandths: cl100k × 1.45 covered every family that was measured.
UNKNOWN_PER_MILLE = 1450
CLAUDE_3_PER_MILLE = 1180
CLAUDE_NEWEST_PER_MILLE = 1500


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """How the tokens of a family of models are counted.

    Attributes:
        name: what people call the family.
        pattern: regular expression that the model's name, without provider, begins with.
        vocabulary: the vocabulary to count with.
        chat: the format around its messages and tools.
        exactness: how far that vocabulary is the models' own; an estimate has a factor.
        per_mille: factor in thousandths for estimates.
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
    ModelFamily("OpenAI", r"text-davinci-00[23]|code-(davinci|cushman)-00[12]", P50K, OPENAI),
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
    # Newer vocabularies are larger, so with these merges they are rather counted too high.
    _related("Qwen", r"qwen[\d.]*|qwq|qvq", QWEN, CHATML),
    ModelFamily("Mistral", _MISTRAL_1, MISTRAL_V1_PIECES, MISTRAL_V1),
    ModelFamily("Mistral", _MISTRAL_2, MISTRAL_V2, MISTRAL),
    ModelFamily("Mistral", _MISTRAL_3, MISTRAL_V3, MISTRAL),
    ModelFamily("Mistral", r"mistral-large-2411", MISTRAL_V7, MISTRAL),
    ModelFamily("Mistral", _NEMO, TEKKEN_0718, MISTRAL),
    ModelFamily("Mistral", r"pixtral-12b-2409|pixtral-large-2411", TEKKEN_0911, MISTRAL),
    _related("Mistral", _NEWER_MISTRAL, TEKKEN_0911, MISTRAL),
    # Of Mistral's vocabularies the older ones give more tokens, so they are safe for all.
    _related("Mistral", r"(open-)?(mistral|mixtral)|codestral|mathstral", MISTRAL_V3, MISTRAL_V1),
)

# These pass a model's real name on. With others, such as an Azure deployment, a name that
# looks familiar may have been given by a user.
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
    """The family of a model's name, and whether the name is surely the provider's own."""
    *providers, name = model.strip().lower().split("/")
    name = _VENDOR.sub("", name, count=1)
    sure = all(provider in _PLAIN_PROVIDERS for provider in providers)
    return next((family for family in FAMILIES if family.matches(name)), None), sure
