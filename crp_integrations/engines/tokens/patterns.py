"""How a text is split before byte pairs are merged, by name; `.tiktoken` files do not say."""

from __future__ import annotations

from collections.abc import Mapping

# The first three are the patterns of tiktoken's own `tiktoken_ext.openai_public`, whose functions
# cannot be called without a download; a test compares their counts.
_P50K = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
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


def _words(digits: str) -> str:
    """The pattern that Meta's `llama_models` and Alibaba's `dashscope` share but for digits."""
    return (
        r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"""
        + digits
        + r"""| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    )


PATTERNS: Mapping[str, str] = {
    "p50k": _P50K,
    "cl100k": _CL100K,
    "o200k": _O200K,
    "llama-3": _words(r"\p{N}{1,3}"),
    "qwen": _words(r"\p{N}"),
}

# Vocabularies whose texts are brought into Unicode's composed form first.
COMPOSED = frozenset({"qwen"})
