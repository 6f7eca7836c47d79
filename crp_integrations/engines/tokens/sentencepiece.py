"""SentencePiece models from a `.model` file, through sentencepiece."""

from __future__ import annotations

from typing import Final

import sentencepiece

from crp_integrations.engines.tokens.text import encodable
from crp_integrations.errors import ConfigError
from crp_integrations.seals import sha256_hex


class SentencePieceEncoder:
    """Counts with a SentencePiece model, without the tokens that open or close a text."""

    def __init__(self, data: bytes, *, name: str) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
        except Exception as error:
            raise ConfigError(
                f"the tokenizer file {name} cannot be read by sentencepiece "
                f"{sentencepiece.__version__}, wanted a SentencePiece model"
            ) from error
        self.identity: Final = f"sentencepiece:{name}:{sha256_hex(data)[:16]}"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._processor.EncodeAsIds(encodable(text)))
