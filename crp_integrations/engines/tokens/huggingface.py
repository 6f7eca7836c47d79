"""Hugging Face tokenizers from a `tokenizer.json`, through tokenizers."""

from __future__ import annotations

from typing import Final

import tokenizers

from crp_integrations.engines.tokens.text import encodable
from crp_integrations.errors import ConfigError
from crp_integrations.seals import sha256_hex


class HuggingFaceEncoder:
    """Counts with a `tokenizer.json`, without the special tokens that open or close a text.

    Special tokens that stand in a text count as plain text, since providers do not let them
    through as such.
    """

    def __init__(self, data: bytes, *, name: str) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:
            raise ConfigError(
                f"the tokenizer file {name} cannot be read by tokenizers "
                f"{tokenizers.__version__}, wanted a tokenizer.json"
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self.identity: Final = f"tokenizers:{name}:{sha256_hex(data)[:16]}"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._tokenizer.encode(encodable(text), add_special_tokens=False).ids)
