"""OpenAI's byte-pair encodings, and files of the same format, through tiktoken."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import tiktoken

from crp_integrations.engines.tokens.counted import Counted
from crp_integrations.engines.tokens.overhead import OPENAI, Overhead
from crp_integrations.engines.tokens.text import pieces
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.vocabulary import Exactness

# The patterns of tiktoken's own `tiktoken_ext.openai_public`, whose functions cannot be
# called without a download; a test compares their counts.
_CL100K_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)
_SUFFIX = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
_O200K_PATTERN = "|".join(
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
PATTERNS: Mapping[str, str] = {"cl100k_base": _CL100K_PATTERN, "o200k_base": _O200K_PATTERN}


class TiktokenCounter(Counted):
    """Counts with a byte-pair encoding; special tokens in a text count as plain text."""

    def __init__(
        self,
        encoding: tiktoken.Encoding,
        *,
        vocabulary_hash: str,
        exactness: Exactness,
        source: str,
        overhead: Overhead = OPENAI,
    ) -> None:
        self._encoding = encoding
        identity = f"tiktoken:{encoding.name}:{vocabulary_hash[:16]}"
        super().__init__(identity, exactness, source, overhead)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        try:
            return sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces(text))
        except BaseException as error:
            # A panic of the Rust library is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise EngineError(
                f"tiktoken could not encode a text of {len(text)} characters",
                engine="tiktoken",
                version=tiktoken.__version__,
            ) from error


def encoding(name: str, data: bytes, pattern: str) -> tiktoken.Encoding:
    """An encoding from the bytes of a `.tiktoken` file.

    Args:
        name: what the encoding is called.
        data: lines of a base64 token, a space and its rank.
        pattern: the regular expression that splits a text before merging.

    Raises:
        ConfigError: the bytes are no such file.
    """
    ranks: dict[bytes, int] = {}
    try:
        for line in data.splitlines():
            if line:
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
    except (ValueError, binascii.Error) as error:
        raise ConfigError(
            f"the vocabulary {name} is no tiktoken file, wanted lines of a token and its rank"
        ) from error
    return from_ranks(name, ranks, pattern)


def from_ranks(name: str, ranks: dict[bytes, int], pattern: str) -> tiktoken.Encoding:
    """An encoding from its merge ranks.

    Raises:
        ConfigError: a single byte has no rank, so some texts could not be encoded.
    """
    missing = sum(bytes([byte]) not in ranks for byte in range(256))
    if missing:
        raise ConfigError(f"the vocabulary {name} lacks {missing} of 256 bytes, wanted all")
    return tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
