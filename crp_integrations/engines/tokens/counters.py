"""Token counters, and how one is chosen by a model's name or a tokenizer file."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, cast

from crp_integrations.engines.tokens.chat_formats import (
    GENERIC,
    OPENAI,
    ChatFormat,
    messages_tokens,
    tools_tokens,
)
from crp_integrations.engines.tokens.encoders import (
    ENDING,
    HuggingFaceEncoder,
    SentencePieceEncoder,
    TiktokenEncoder,
    encodable,
    encoding,
    tekken,
)
from crp_integrations.engines.tokens.vocabularies import (
    CL100K,
    COMPOSED,
    PATTERNS,
    UNKNOWN_PER_MILLE,
    WITH_PATTERN,
    FoundVocabulary,
    ModelFamily,
    Vocabulary,
    family_of,
    find_vocabulary,
)
from crp_integrations.errors import ConfigError, MissingExtra
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import Exactness


class Encoder(Protocol):
    """A loaded vocabulary; several counters share one."""

    @property
    def identity(self) -> str:
        """Engine, vocabulary and hash."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text, without special tokens at its beginning and end."""
        ...


class CounterBase(ABC):
    """Base of token counters; a subclass only implements `count` for one text.

    Attributes:
        identity: engine, vocabulary and hash; the key under which counts are stored.
        exactness: how far the counts can be trusted for the chosen model.
        source: the vocabulary and where it was found.
        chat: the format around messages and tools.
    """

    def __init__(
        self, identity: str, exactness: Exactness, source: str, chat: ChatFormat = GENERIC
    ) -> None:
        self.identity: Final = identity
        self.exactness: Final = exactness
        self.source: Final = source
        self.chat: Final = chat

    @abstractmethod
    def count(self, text: str) -> int:
        """Tokens of a text."""

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation with the format around each message."""
        return messages_tokens(messages, self.count, self.chat)

    def count_tools(self, tools: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of tool definitions in the format sent to the model family."""
        return tools_tokens(tools, self.count, self.chat)


class VocabularyCounter(CounterBase):
    """Counts with a vocabulary; `exactness` says whether it is the model's own."""

    def __init__(
        self, encoder: Encoder, *, exactness: Exactness, source: str, chat: ChatFormat
    ) -> None:
        super().__init__(encoder.identity, exactness, source, chat)
        self._encoder = encoder

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return self._encoder.count(text)


_LETTERS = re.compile(r"[A-Za-z ]")


class ScaledCounter(CounterBase):
    """Another vocabulary's count times a factor, rounded up.

    Attributes:
        per_mille: the factor in thousandths, so that counts stay integers.
    """

    def __init__(
        self, base: TokenCounter, *, per_mille: int, family: str, chat: ChatFormat
    ) -> None:
        super().__init__(
            f"estimate:{per_mille}:{base.identity}",
            Exactness.ESTIMATE,
            f"{base.source} × {per_mille / 1000:.2f} for {family}",
            chat,
        )
        self._base = base
        self.per_mille: Final = per_mille

    def count(self, text: str) -> int:
        """Estimated tokens of a text."""
        return -(-self._base.count(text) * self.per_mille // 1000)


class CharacterCounter(CounterBase):
    """An estimate without a vocabulary (`characters@1`), rather too high than too low.

    It counts a third of a token for each ASCII letter or space, two thirds for each other ASCII
    character, and half a token for each UTF-8 byte of other characters.
    """

    def __init__(self, chat: ChatFormat = GENERIC) -> None:
        source = "characters, since no vocabulary was found"
        super().__init__("characters@1", Exactness.ESTIMATE, source, chat)

    def count(self, text: str) -> int:
        """Estimated tokens of a text."""
        data = encodable(text).encode()
        ascii_characters = sum(byte < 128 for byte in data)
        letters = len(_LETTERS.findall(text))
        sixths = 2 * letters + 4 * (ascii_characters - letters) + 3 * (len(data) - ascii_characters)
        return -(-sixths // 6)


EXTRACTIVE = "extractive"

# Cache of this process's encoders and counters, since loading a vocabulary takes a second.
_made: dict[tuple[str, ...], object] = {}
_lock = Lock()
_Made = TypeVar("_Made")


def counter_for(
    model: str, *, tokenizer_file: str | None = None, folders: Sequence[Path] = ()
) -> TokenCounter:
    """The best token counter that this machine has for a model.

    Spec: CRP-SPEC-003 §10.1 (decision E19)

    Args:
        model: a name as LiteLLM takes it, such as `gpt-4o` or `mistral/mistral-large-2411`.
        tokenizer_file: path of the model's own tokenizer: a SentencePiece `.model`, a
            `tokenizer.json`, a `tekken.json` or a `.tiktoken` file. It is used instead of the
            name's vocabulary; the name still determines the format of messages and tools.
        folders: tiktoken cache folders of the user, searched before installed packages.

    Returns:
        A counter whose `exactness` says how far to trust it. Nothing is downloaded.
    """
    if not isinstance(model, str):
        raise ConfigError(
            f"model is of type {type(model).__name__}; give a name, such as 'gpt-4o-mini'"
        )
    family, sure = family_of(model)
    chat = GENERIC if family is None else family.chat
    if tokenizer_file is not None:
        return _from_file(Path(tokenizer_file), chat)
    if model.strip().lower().partition("/")[0] == EXTRACTIVE:
        # The extractive model's context limit is defined in tokens of this vocabulary.
        counter = _counter(CL100K, Exactness.EXACT, OPENAI, folders)
        return counter or CharacterCounter(OPENAI)
    if family is not None and family.exactness is not Exactness.ESTIMATE:
        exactness = family.exactness if sure else Exactness.FAMILY
        counter = _counter(family.vocabulary, exactness, chat, folders)
        if counter is not None:
            return counter
    return _estimated(family, chat, folders)


def _estimated(
    family: ModelFamily | None, chat: ChatFormat, folders: Sequence[Path]
) -> TokenCounter:
    if family is not None and family.exactness is Exactness.ESTIMATE:
        base = _counter(family.vocabulary, Exactness.ESTIMATE, chat, folders)
        if base is not None:
            return ScaledCounter(base, per_mille=family.per_mille, family=family.name, chat=chat)
    name = "an unknown model" if family is None else family.name
    base = _counter(CL100K, Exactness.ESTIMATE, chat, folders)
    if base is None:
        return CharacterCounter(chat)
    return ScaledCounter(base, per_mille=UNKNOWN_PER_MILLE, family=name, chat=chat)


def _counter(
    vocabulary: Vocabulary, exactness: Exactness, chat: ChatFormat, folders: Sequence[Path]
) -> TokenCounter | None:
    """A counter with a known vocabulary, loaded once per process; None if it is not found."""

    def load() -> tuple[Encoder, str] | None:
        contents = find_vocabulary(vocabulary, folders)
        if contents is None:
            return None
        try:
            return _load(vocabulary, contents)
        except MissingExtra:
            # Without its library the vocabulary cannot be used; the caller then makes an estimate.
            return None

    places = tuple(str(folder) for folder in folders)
    loaded = _once(("vocabulary", vocabulary.name, *places), load)
    if loaded is None:
        return None
    encoder, source = loaded
    return _once(
        ("counter", vocabulary.name, exactness.value, chat.name, *places),
        lambda: VocabularyCounter(encoder, exactness=exactness, source=source, chat=chat),
    )


def _once(key: tuple[str, ...], make: Callable[[], _Made]) -> _Made:
    with _lock:
        if key not in _made:
            _made[key] = make()
        return cast("_Made", _made[key])


def _load(vocabulary: Vocabulary, contents: FoundVocabulary) -> tuple[Encoder, str]:
    source = f"{vocabulary.name} from {contents.where}"
    if vocabulary.pattern:
        encoder = _tiktoken(vocabulary.name, contents.data, vocabulary.pattern)
        return encoder, f"tiktoken {source}"
    if contents.data[:1] == b"{":
        return _json(contents.data, vocabulary.name), source
    return SentencePieceEncoder(contents.data, name=vocabulary.name), source


def _from_file(path: Path, chat: ChatFormat) -> TokenCounter:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the tokenizer file {path} cannot be read: {error.strerror}") from error
    key = (path.name, sha256_hex(data))
    encoder, exactness, source = _once(("file", *key), lambda: _of_kind(path, data))
    return _once(
        ("file counter", *key, chat.name),
        lambda: VocabularyCounter(encoder, exactness=exactness, source=source, chat=chat),
    )


def _of_kind(path: Path, data: bytes) -> tuple[Encoder, Exactness, str]:
    """Choose the encoder by content, since files of two formats are named `tokenizer.model`."""
    source = f"file {path.name}"
    if data.lstrip()[:1] == b"{":
        return _json(data, path.name), Exactness.EXACT, source
    first = data.split(b"\n", 1)[0].split()
    if len(first) == 2 and first[1].isdigit():
        return _ranks(path.name, data, source)
    if ".model" in path.suffixes:
        return SentencePieceEncoder(data, name=path.name), Exactness.EXACT, source
    raise ConfigError(
        f"the tokenizer file {path.name} has an unknown format, wanted a SentencePiece .model, a "
        "tokenizer.json, a tekken.json or a .tiktoken file"
    )


def _ranks(name: str, data: bytes, source: str) -> tuple[Encoder, Exactness, str]:
    """Load a `.tiktoken` file; it lacks its splitting pattern, so only known ones are exact."""
    seal = sha256_hex(data)
    known = next((vocabulary for vocabulary in WITH_PATTERN if vocabulary.sha256 == seal), None)
    if known is None:
        return _tiktoken(name, data, CL100K.pattern), Exactness.FAMILY, f"tiktoken {source}"
    encoder = _tiktoken(known.name, data, known.pattern)
    return encoder, Exactness.EXACT, f"tiktoken {source}"


def _json(data: bytes, name: str) -> Encoder:
    return (tekken if b'"token_bytes"' in data[:65_536] else HuggingFaceEncoder)(data, name=name)


def _tiktoken(name: str, data: bytes, pattern: str) -> Encoder:
    return TiktokenEncoder(
        encoding(name, data, PATTERNS[pattern]),
        vocabulary_hash=sha256_hex(data),
        composed=pattern in COMPOSED,
        blocks=pattern in ENDING,
    )
