"""Encoders of vocabularies: tiktoken and tekken files, `tokenizer.json`, SentencePiece models.

A library is imported when the first encoder needs it.
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

# With some hundred thousand white-space characters in a row, tiktoken's pattern engine runs
# out of stack. Each cut adds at most about one token to the count.
_MAX_RUN = 20_000
# The lookbehind lets a match start only at the first character of a run, so search is linear.
_LONG_RUN = re.compile(rf"(?<!\s)\s{{{_MAX_RUN},}}")


def encodable(text: str) -> str:
    """The text with each lone surrogate replaced, as tiktoken itself does; else unchanged."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def short_runs(text: str) -> list[str]:
    """The text, cut after every 20,000 white-space characters in a row; joined, it is unchanged."""
    if len(text) <= _MAX_RUN:
        return [text]
    runs = (match.span() for match in _LONG_RUN.finditer(text))
    cuts = [cut for start, end in runs for cut in range(start + _MAX_RUN, end + 1, _MAX_RUN)]
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


# Names in `vocabularies.PATTERNS` whose pattern always splits on both sides of a marker such as
# `[3] ` after an empty line or at the beginning, so that a text's count is the sum of its parts'.
# The reasons: white space that ends in a line break is matched up to that break, and no other part
# of the pattern matches a break with text after it; `[` is followed by a digit, so it does not
# begin a word; `]` is followed by a space, so it does not begin a word or precede line breaks.
# Other patterns split a run of line breaks depending on the text after it.
ENDING = frozenset({"cl100k", "o200k", "llama-3", "qwen"})
# Characters of all cached blocks together, and of the longest cached block.
_MAX_CACHED, _MAX_BLOCK = 2_000_000, 8_000
# Maximum digits of a marker, since patterns split a number after three digits.
_MAX_DIGITS = 3


class BlockCounts:
    """Counts texts by their numbered blocks; counts of recent blocks are cached.

    Args:
        count: counts the tokens of a text, with a pattern named in `ENDING`.
    """

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._blocks = Memory(count, _MAX_CACHED, longest=_MAX_BLOCK)

    def count(self, text: str) -> int:
        """Tokens of a text; a block that was counted recently is not counted again."""
        parts = _parts(text)
        return self._count(text) if len(parts) == 1 else sum(self._blocks.of(parts))


def _parts(text: str) -> list[str]:
    r"""Cut a text before and after each marker; joined, the parts are the text, and none is empty.

    >>> _parts("[1] One.\n\n[2] Two.\n\n[x] Three.")
    ['[1]', ' One.\n\n', '[2]', ' Two.\n\n[x] Three.']
    """
    # Much faster than a regular expression, which tries every character.
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
    """The end of a marker in the text after its `[`; 0 if there is no marker."""
    end = text.find("] ", 1, _MAX_DIGITS + 2)
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
            # A panic of the Rust library is a BaseException, but not an Exception.
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
    # Split at once, since line by line takes a quarter of a second whenever a store is opened.
    words = data.split()
    tokens, numbers = words[::2], words[1::2]
    try:
        ranks = dict(zip(map(_unwrapped, tokens), map(int, numbers), strict=True))
    except (ValueError, binascii.Error) as error:
        raise ConfigError(
            f"the vocabulary {name} is not a tiktoken file, wanted lines of a token and its rank"
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
        raise ConfigError(f"{name} is not a tekken file, wanted a tekken.json") from error
    return TiktokenEncoder(from_ranks(name, ranks, pattern), vocabulary_hash=sha256_hex(data))


class HuggingFaceEncoder:
    """Counts with a `tokenizer.json`, without special tokens at a text's beginning and end.

    Special tokens that occur in a text count as plain text, since providers do not accept them
    as special.
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
    """Counts with a SentencePiece model, without special tokens at a text's beginning and end."""

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
