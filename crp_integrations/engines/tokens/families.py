"""Which tokenizer a model's name stands for: one table, first match wins."""

from __future__ import annotations

import re
from dataclasses import dataclass

from crp_integrations.engines.tokens.offline import (
    CL100K,
    CLAUDE_2,
    DEEPSEEK,
    MISTRAL_V2,
    MISTRAL_V3,
    MISTRAL_V7,
    O200K,
    TEKKEN_0718,
    TEKKEN_0911,
    Vocabulary,
)
from crp_integrations.vocabulary import Exactness

# Factors in thousandths: cl100k × 1.45 covered every family that was measured.
UNKNOWN_PER_MILLE = 1450
CLAUDE_3_PER_MILLE = 1180
CLAUDE_NEWEST_PER_MILLE = 1500


@dataclass(frozen=True, slots=True)
class Family:
    """How the tokens of a family of models are counted.

    Attributes:
        name: what people call the family.
        pattern: regular expression that the model's name, without provider, begins with.
        vocabulary: the vocabulary to count with.
        exactness: how far that vocabulary is the models' own; an estimate has a factor.
        per_mille: factor in thousandths for estimates.
    """

    name: str
    pattern: str
    vocabulary: Vocabulary
    exactness: Exactness = Exactness.EXACT
    per_mille: int = 1000

    def matches(self, model: str) -> bool:
        """Whether a name without provider, in lower case, belongs to the family."""
        return re.match(f"(?:{self.pattern})(?![a-z0-9])", model) is not None


def _estimate(name: str, pattern: str, vocabulary: Vocabulary, per_mille: int) -> Family:
    return Family(name, pattern, vocabulary, Exactness.ESTIMATE, per_mille)


FAMILIES: tuple[Family, ...] = (
    Family("OpenAI", r"(ft:)?(gpt-4o|chatgpt-4o|gpt-4\.[15]|gpt-5(\.\d+)?|o[134])", O200K),
    Family("OpenAI", r"gpt-oss|codex-mini", O200K),
    Family("OpenAI", r"(ft:)?(gpt-4|gpt-3\.5|gpt-35)", CL100K),
    Family("OpenAI", r"(ft:)?(davinci-002|babbage-002)", CL100K),
    Family("OpenAI", r"text-embedding-(ada-002|3-small|3-large)", CL100K),
    Family("OpenAI", r"(ft:)?(gpt-\d+(\.\d+)?|o\d+)", O200K, Exactness.FAMILY),
    Family("Claude 2", r"claude-(instant|v?[12])(\.\d+|-\d+)*", CLAUDE_2),
    _estimate("Claude 3 and 4", r"claude-3", O200K, CLAUDE_3_PER_MILLE),
    _estimate(
        "Claude 3 and 4",
        r"claude-(opus|sonnet|haiku)-4([-.@][0-6])?([-@]\d{8})?(-v\d+(:\d+)?|-latest)?$",
        O200K,
        CLAUDE_3_PER_MILLE,
    ),
    _estimate("the newest Claude", r"claude", O200K, CLAUDE_NEWEST_PER_MILLE),
    Family("DeepSeek", r"deepseek-(chat|reasoner)|deepseek[-_.]?(chat[-_.])?v3", DEEPSEEK),
    Family("DeepSeek", r"deepseek", DEEPSEEK, Exactness.FAMILY),
    Family("Mistral", r"mistral-(small|large)-2402", MISTRAL_V2),
    Family("Mistral", r"open-mixtral-8x22b|codestral-(2405|mamba)|mistral-large-2407", MISTRAL_V3),
    Family("Mistral", r"mistral-large-2411", MISTRAL_V7),
    Family("Mistral", r"open-mistral-nemo|mistral-nemo|ministral-8b-2410", TEKKEN_0718),
    Family("Mistral", r"pixtral-12b-2409|pixtral-large-2411", TEKKEN_0911),
    Family(
        "Mistral",
        r"ministral|pixtral|magistral|devstral|voxtral"
        r"|mistral-medium-(3|2[5-9])\d*|(mistral-(small|large)|codestral)-(3|2[5-9])\d*",
        TEKKEN_0911,
        Exactness.FAMILY,
    ),
    # Of Mistral's vocabularies the older ones give more tokens, so they are safe for all.
    Family(
        "Mistral", r"(open-)?(mistral|mixtral)|codestral|mathstral", MISTRAL_V3, Exactness.FAMILY
    ),
)

# These pass a model's real name on. With others, such as an Azure deployment, a name that
# looks familiar may have been given by a user.
_PLAIN_PROVIDERS = frozenset(
    {
        "anthropic",
        "bedrock",
        "codestral",
        "converse",
        "deepseek",
        "deepinfra",
        "fireworks_ai",
        "github",
        "groq",
        "invoke",
        "mistral",
        "mistralai",
        "openai",
        "openrouter",
        "responses",
        "text-completion-openai",
        "together_ai",
        "vertex_ai",
    }
)
_VENDOR = re.compile(r"(?:(?:us|eu|apac|jp|au|global)\.)?(?:anthropic|deepseek|mistral|openai)\.")


def family_of(model: str) -> tuple[Family | None, bool]:
    """The family of a model's name, and whether the name is surely the provider's own.

    Args:
        model: a name as LiteLLM takes it, with or without providers before it.
    """
    *providers, name = model.strip().lower().split("/")
    name = _VENDOR.sub("", name, count=1)
    sure = all(provider in _PLAIN_PROVIDERS for provider in providers)
    return next((family for family in FAMILIES if family.matches(name)), None), sure
