"""OpenAI's byte-pair encodings, and files of the same format, through tiktoken."""

from __future__ import annotations

import binascii
import unicodedata
from functools import partial
from typing import Final

import tiktoken

from crp_integrations.engines.tokens.blocks import Blocks
from crp_integrations.engines.tokens.text import pieces
from crp_integrations.errors import ConfigError, EngineError

_unwrapped = partial(binascii.a2b_base64, strict_mode=True)


class TiktokenEncoder:
    """Counts with a byte-pair encoding; special tokens in a text count as plain text."""

    def __init__(
        self,
        encoding: tiktoken.Encoding,
        *,
        vocabulary_hash: str,
        composed: bool = False,
        blocks: bool = False,
    ) -> None:
        """Take a loaded encoding.

        Args:
            vocabulary_hash: SHA-256 of its file, hexadecimal.
            composed: texts are brought into Unicode's composed form first, as Qwen does.
            blocks: the pattern ends a piece at markers of facts, as `blocks` says, so that facts
                which were counted lately are not counted again within a text.
        """
        self._encoding = encoding
        self._composed = composed
        self._blocks = Blocks(self._encoded) if blocks else None
        self.identity: Final = f"tiktoken:{encoding.name}:{vocabulary_hash[:16]}"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if self._composed:
            text = unicodedata.normalize("NFC", text)
        return self._encoded(text) if self._blocks is None else self._blocks.count(text)

    def _encoded(self, text: str) -> int:
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
    # All at once: line by line takes a quarter of a second, each time a store is opened.
    words = data.split()
    tokens, numbers = words[::2], words[1::2]
    try:
        ranks = dict(zip(map(_unwrapped, tokens), map(int, numbers), strict=True))
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
