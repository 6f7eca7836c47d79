"""Encoders of vocabularies: tiktoken and tekken files, `tokenizer.json`, SentencePiece models.

A library is imported with the first encoder that needs it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import unicodedata
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from crp_integrations.errors import ConfigError, EngineError, MissingExtra
from crp_integrations.language.memo import Memory
from crp_integrations.seals import sha256_hex

if TYPE_CHECKING:
    import tiktoken

# Above some hundred thousand white-space characters in a row tiktoken's pattern engine runs
# out of stack. A cut adds at most about one token to each run's count.
_RUN = 20_000
# Looking behind makes a search start at the first character of a run only, so it is linear.
_LONG_RUN = re.compile(rf"(?<!\s)\s{{{_RUN},}}")


def encodable(text: str) -> str:
    """The text with each lone surrogate replaced, as tiktoken itself does; else unchanged."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def short_runs(text: str) -> list[str]:
    """The text, cut behind every 20,000 white-space characters in a row; together unchanged."""
    if len(text) <= _RUN:
        return [text]
    runs = (match.span() for match in _LONG_RUN.finditer(text))
    cuts = [cut for start, end in runs for cut in range(start + _RUN, end + 1, _RUN)]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


# Names in `vocabulary_files.PATTERNS` that end a piece on both sides of a marker such as `[3] `
# behind an empty line or at the beginning, so that a text's count is the sum of its parts'. White
# space that ends in a line break is taken up to that break, and no other part of a pattern takes a
# break that something follows; a digit follows `[`, so it begins no word; a space follows `]`, so
# it neither begins a word nor stands before line breaks. Other patterns split a run of line breaks
# by what follows it.
ENDING = frozenset({"cl100k", "o200k", "llama-3", "qwen"})
# Characters of blocks that are remembered together, and of the longest.
_KEPT, _LONGEST_KEPT = 2_000_000, 8_000
# Digits of a marker, at most; patterns end a number there.
_DIGITS = 3


class BlockCounts:
    """Counts texts by their numbered blocks, of which the last ones are remembered.

    Args:
        count: tokens of a text, by a pattern of `ENDING`.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._blocks = Memory(count, _KEPT, longest=_LONGEST_KEPT)

    def count(self, text: str) -> int:
        """Tokens of a text; a block that was counted lately is not counted again."""
        parts = _parts(text)
        return self._count(text) if len(parts) == 1 else sum(self._blocks.of(parts))


def _parts(text: str) -> list[str]:
    r"""A text cut before each marker and behind it; together unchanged, and none empty.

    >>> _parts("[1] One.\n\n[2] Two.\n\n[x] Three.")
    ['[1]', ' One.\n\n', '[2]', ' Two.\n\n[x] Three.']
    """
    # Far quicker than a regular expression, which tries every character.
    first, *others = text.split("\n\n[")
    if first[:1] == "[" and (end := _marked(first[1:])):
        parts = [first[: end + 1], first[end + 1 :]]
    else:
        parts = [first]
    for other in others:
        parts[-1] += "\n\n"
        end = _marked(other)
        if end:
            parts += "[" + other[:end], other[end:]
        else:
            parts[-1] += "[" + other
    return parts


def _marked(text: str) -> int:
    """The end of a marker in a text that follows the marker's `[`; 0 where there is no marker."""
    end = text.find("] ", 1, _DIGITS + 2)
    digits = text[:end] if end > 0 else ""
    return end + 1 if digits.isascii() and digits.isdigit() else 0


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
        """Take a loaded encoding."""
        self._encoding = encoding
        self._composed = composed
        self._blocks = BlockCounts(self._encoded) if blocks else None
        self.identity: Final = f"tiktoken:{encoding.name}:{vocabulary_hash[:16]}"

    def count(self, text: str) -> int:
        """Tokens of a text."""
        if self._composed:
            text = unicodedata.normalize("NFC", text)
        return self._encoded(text) if self._blocks is None else self._blocks.count(text)

    def _encoded(self, text: str) -> int:
        try:
            return sum(len(self._encoding.encode_ordinary(piece)) for piece in short_runs(text))
        except BaseException as error:
            # A panic of the Rust library is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            import tiktoken

            raise EngineError(
                f"tiktoken could not encode a text of {len(text)} characters",
                engine="tiktoken",
                version=tiktoken.__version__,
            ) from error


def encoding(name: str, data: bytes, pattern: str) -> tiktoken.Encoding:
    """An encoding from the bytes of a `.tiktoken` file."""
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
    """An encoding from its merge ranks."""
    missing = sum(bytes([byte]) not in ranks for byte in range(256))
    if missing:
        raise ConfigError(f"the vocabulary {name} lacks {missing} of 256 bytes, wanted all")
    import tiktoken

    return tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def tekken(data: bytes, *, name: str) -> TiktokenEncoder:
    """An encoder from the bytes of a `tekken.json`."""
    try:
        content = json.loads(data)
        config = content["config"]
        size = int(config["default_vocab_size"]) - int(config["default_num_special_tokens"])
        ranks = {
            base64.b64decode(entry["token_bytes"]): int(entry["rank"])
            for entry in content["vocab"][:size]
        }
        pattern = str(config["pattern"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the tokenizer file {name} is no tekken file, wanted one") from error
    return TiktokenEncoder(from_ranks(name, ranks, pattern), vocabulary_hash=sha256_hex(data))


class HuggingFaceEncoder:
    """Counts with a `tokenizer.json`, without the special tokens that open or close a text.

    Special tokens that stand in a text count as plain text, since providers do not let them
    through as such.
    """

    def __init__(self, data: bytes, *, name: str) -> None:
        import tokenizers

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


class SentencePieceEncoder:
    """Counts with a SentencePiece model, without the tokens that open or close a text."""

    def __init__(self, data: bytes, *, name: str) -> None:
        try:
            import sentencepiece
        except ImportError as error:
            raise MissingExtra("tokenizers", f"the tokenizer file {name}") from error
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
