"""SentencePiece models from a `.model` file, through sentencepiece."""

from __future__ import annotations

from collections.abc import Sequence

import sentencepiece

from crp_integrations.engines.tokens.overhead import GENERIC, Overhead, messages_tokens
from crp_integrations.engines.tokens.text import encodable
from crp_integrations.errors import ConfigError
from crp_integrations.messages import Message
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import Exactness


class SentencePieceCounter:
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
        self._identity = f"sentencepiece:{name}:{sha256_hex(data)[:16]}"
        self._exactness = exactness
        self._source = source
        self._overhead = overhead

    @property
    def identity(self) -> str:
        """Engine, name and the first 16 digits of the file's hash."""
        return self._identity

    @property
    def exactness(self) -> Exactness:
        """How far the counts can be trusted for the model at hand."""
        return self._exactness

    @property
    def source(self) -> str:
        """The file's name or package."""
        return self._source

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._processor.EncodeAsIds(encodable(text)))

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation with the format around each message."""
        return messages_tokens(messages, self.count, self._overhead)
