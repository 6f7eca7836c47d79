"""SentencePiece models from a `.model` file, through sentencepiece."""

from __future__ import annotations

import sentencepiece

from crp_integrations.engines.tokens.counted import Counted
from crp_integrations.engines.tokens.overhead import GENERIC, Overhead
from crp_integrations.engines.tokens.text import encodable
from crp_integrations.errors import ConfigError
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import Exactness


class SentencePieceCounter(Counted):
    """Counts with a SentencePiece model, without the tokens that open or close a text."""

    def __init__(
        self,
        data: bytes,
        *,
        name: str,
        exactness: Exactness,
        source: str,
        overhead: Overhead = GENERIC,
    ) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
        except Exception as error:
            raise ConfigError(
                f"the tokenizer file {name} cannot be read by sentencepiece "
                f"{sentencepiece.__version__}, wanted a SentencePiece model"
            ) from error
        identity = f"sentencepiece:{name}:{sha256_hex(data)[:16]}"
        super().__init__(identity, exactness, source, overhead)

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._processor.EncodeAsIds(encodable(text)))
