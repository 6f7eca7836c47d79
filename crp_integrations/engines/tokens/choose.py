"""The one door: a token counter for a model's name, or for a tokenizer file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TypeVar, cast

from crp_integrations.engines.tokens.estimate import CharacterCounter, ScaledCounter
from crp_integrations.engines.tokens.families import UNKNOWN_PER_MILLE, Family, family_of
from crp_integrations.engines.tokens.offline import CL100K, O200K, Found, Vocabulary, find
from crp_integrations.engines.tokens.overhead import GENERIC, OPENAI
from crp_integrations.errors import ConfigError, MissingExtra
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256_hex
from crp_integrations.vocabulary import Exactness

EXTRACTIVE = "extractive"

_Made = TypeVar("_Made", bound=TokenCounter | None)

_made: dict[tuple[str, ...], TokenCounter | None] = {}
_lock = Lock()


def counter_for(
    model: str, *, tokenizer_file: str | None = None, folders: Sequence[Path] = ()
) -> TokenCounter:
    """The best token counter that this machine has for a model.

    Spec: CRP-SPEC-003 §10.1 (decision E19)

    Args:
        model: a name as LiteLLM takes it, such as `gpt-4o` or `mistral/mistral-large-2411`.
        tokenizer_file: path of the model's own tokenizer: a SentencePiece `.model`, a
            `tokenizer.json`, a `tekken.json` or a `.tiktoken` file. It goes before the name.
        folders: tiktoken cache folders of the user, looked at before installed packages.

    Returns:
        A counter whose `exactness` says how far to trust it; never a download.

    Raises:
        ConfigError: the file is missing or of none of these kinds.
        MissingExtra: the file needs sentencepiece, which is not installed.
    """
    if tokenizer_file is not None:
        return _from_file(Path(tokenizer_file))
    if model.strip().lower().partition("/")[0] == EXTRACTIVE:
        # Its context limit is ours and counted with this vocabulary, so this is its tokenizer.
        return _counter(CL100K, Exactness.EXACT, folders) or CharacterCounter()
    family, sure = family_of(model)
    if family is not None and family.exactness is not Exactness.ESTIMATE:
        exactness = family.exactness if sure else Exactness.FAMILY
        counter = _counter(family.vocabulary, exactness, folders)
        if counter is not None:
            return counter
    return _estimated(family, folders)


def _estimated(family: Family | None, folders: Sequence[Path]) -> TokenCounter:
    if family is not None and family.exactness is Exactness.ESTIMATE:
        base = _counter(family.vocabulary, Exactness.ESTIMATE, folders)
        if base is not None:
            return ScaledCounter(base, per_mille=family.per_mille, family=family.name)
    name = "an unknown model" if family is None else family.name
    base = _counter(CL100K, Exactness.ESTIMATE, folders)
    if base is None:
        return CharacterCounter()
    return ScaledCounter(base, per_mille=UNKNOWN_PER_MILLE, family=name)


def _counter(
    vocabulary: Vocabulary, exactness: Exactness, folders: Sequence[Path]
) -> TokenCounter | None:
    """A counter with a known vocabulary, loaded once a process; None when it is not here."""

    def load() -> TokenCounter | None:
        found = find(vocabulary, folders)
        if found is None:
            return None
        try:
            return _load(vocabulary, found, exactness)
        except MissingExtra:
            # Without the library the vocabulary is of no use; the estimate says what it is.
            return None

    places = tuple(str(folder) for folder in folders)
    return _once(("vocabulary", vocabulary.name, exactness.value, *places), load)


def _once(key: tuple[str, ...], load: Callable[[], _Made]) -> _Made:
    with _lock:
        if key not in _made:
            _made[key] = load()
        return cast(_Made, _made[key])


def _load(vocabulary: Vocabulary, found: Found, exactness: Exactness) -> TokenCounter:
    source = f"{vocabulary.name} from {found.where}"
    if vocabulary in (CL100K, O200K):
        return _tiktoken(vocabulary.name, found.data, vocabulary.name, exactness, source)
    if found.data[:1] == b"{":
        return _json(found.data, vocabulary.name, exactness, source)
    return _sentencepiece(found.data, vocabulary.name, exactness, source)


def _from_file(path: Path) -> TokenCounter:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the tokenizer file {path} cannot be read: {error.strerror}") from error
    key = ("file", path.name, sha256_hex(data))
    return _once(key, lambda: _of_kind(path, data))


def _of_kind(path: Path, data: bytes) -> TokenCounter:
    """The content decides, since `tokenizer.model` names files of two formats."""
    source = f"file {path.name}"
    if data.lstrip()[:1] == b"{":
        return _json(data, path.name, Exactness.EXACT, source)
    first = data.split(b"\n", 1)[0].split()
    if len(first) == 2 and first[1].isdigit():
        return _ranks(path.name, data, source)
    if ".model" in path.suffixes:
        return _sentencepiece(data, path.name, Exactness.EXACT, source)
    raise ConfigError(
        f"the tokenizer file {path.name} is of no known kind, wanted a SentencePiece .model, a "
        "tokenizer.json, a tekken.json or a .tiktoken file"
    )


def _ranks(name: str, data: bytes, source: str) -> TokenCounter:
    """A `.tiktoken` file; it does not hold its splitting pattern, so only known ones are exact."""
    known = {vocabulary.sha256: vocabulary.name for vocabulary in (CL100K, O200K)}
    pattern = known.get(sha256_hex(data))
    if pattern is None:
        return _tiktoken(name, data, CL100K.name, Exactness.FAMILY, source)
    return _tiktoken(pattern, data, pattern, Exactness.EXACT, source)


def _json(data: bytes, name: str, exactness: Exactness, source: str) -> TokenCounter:
    if b'"token_bytes"' in data[:65_536]:
        from crp_integrations.engines.tokens.mistral import tekken

        return tekken(data, name=name, exactness=exactness, source=source)
    from crp_integrations.engines.tokens.huggingface import HuggingFaceCounter

    return HuggingFaceCounter(data, name=name, exactness=exactness, source=source)


def _sentencepiece(data: bytes, name: str, exactness: Exactness, source: str) -> TokenCounter:
    try:
        from crp_integrations.engines.tokens.sentencepiece import SentencePieceCounter
    except ImportError as error:
        raise MissingExtra("tokenizers", f"the tokenizer file {name}") from error
    return SentencePieceCounter(data, name=name, exactness=exactness, source=source)


def _tiktoken(
    name: str, data: bytes, pattern: str, exactness: Exactness, source: str
) -> TokenCounter:
    from crp_integrations.engines.tokens.tiktoken import PATTERNS, TiktokenCounter, encoding

    return TiktokenCounter(
        encoding(name, data, PATTERNS[pattern]),
        vocabulary_hash=sha256_hex(data),
        exactness=exactness,
        source=f"tiktoken {source}",
        overhead=OPENAI if name in PATTERNS else GENERIC,
    )
