"""How a premise and a claim reach a network, and which window decides.

The token ids are put together here from a frame and the two texts, so that every token of every
passage is read in some window, and text such as "[SEP]" or "</s>" stays text. A claim that is
longer than half a run is read in pieces.

Spec: CRP-SPEC-005 §6.2 (decision D6)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tokenizers

from crp_integrations.dpe.ports import Judgement
from crp_integrations.engines.cross_encoders import probability
from crp_integrations.engines.onnx import windows
from crp_integrations.engines.verifiers.model_files import PinnedFiles, failed, installed, library
from crp_integrations.errors import ConfigError, EngineError

# From here on a window entails, or contradicts, a claim.
DECIDED = 0.5
PLACES = 6
# A verifier that read nothing holds nothing for supported.
UNREAD = Judgement(0.0, 0.0, 1.0, 0)


@dataclass(frozen=True, slots=True)
class WindowScore:
    """What a network says of one window.

    Attributes:
        entailment, contradiction: probabilities whose sum is at most 1.
        passage: position of the passage that the window was cut from.
    """

    entailment: float
    contradiction: float
    passage: int


def best(windows: Sequence[WindowScore]) -> Judgement:
    """The window that decides.

    That which entails most surely, if one entails; else that which contradicts most surely, if
    one contradicts; else the nearest to entailing. Of equals the first.

    >>> best([WindowScore(0.1, 0.0, 0), WindowScore(0.1, 0.7, 1)]).passage
    1
    """
    entailing = max(windows, key=lambda seen: seen.entailment)
    if entailing.entailment >= DECIDED:
        return judgement(entailing)
    opposing = max(windows, key=lambda seen: seen.contradiction)
    return judgement(opposing if opposing.contradiction >= DECIDED else entailing)


def weakest(pieces: Sequence[Judgement]) -> Judgement:
    """The piece of a claim that is entailed least, of equals the more contradicted."""
    return min(pieces, key=lambda piece: (piece.entailment, -piece.contradiction))


def judgement(seen: WindowScore) -> Judgement:
    """A window's numbers, rounded, with the rest of 1 as neutral."""
    entailment, contradiction = seen.entailment, seen.contradiction
    # Written so that a number that is none fails as well.
    if not (entailment >= 0.0 and contradiction >= 0.0 and entailment + contradiction <= 1.0001):
        raise EngineError(
            f"a verifier gave entailment {entailment} and contradiction {contradiction}, wanted "
            "probabilities"
        )
    entailment = min(1.0, round(entailment, PLACES))
    contradiction = min(round(1.0 - entailment, PLACES), round(contradiction, PLACES))
    neutral = round(1.0 - entailment - contradiction, PLACES)
    return Judgement(entailment, contradiction, max(0.0, neutral), seen.passage)


# Tokens that neighbouring windows share.
TOKEN_OVERLAP: Final = 32
LEAST_TOKENS: Final = 96
# Networks whose first position number is not 0 have that many fewer of them.
_OFFSET_POSITIONS: Final = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"})
Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """How a network is run.

    Attributes:
        max_tokens: most tokens of one pair, control tokens included; lowered to what the network
            has positions for.
        batch_size: pairs of one run; another size can change the last bits of a number.
        device: where torch runs it.
        passage: longest passage that stage 4 is to hand over, in characters; longer ones are
            read in windows all the same.
    """

    max_tokens: int = 512
    batch_size: int = 8
    device: str = "cpu"
    passage: int = 4_000

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", LEAST_TOKENS), ("batch_size", 1), ("passage", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least {least}")


@dataclass(frozen=True, slots=True)
class PairFrame:
    """The token ids around the two texts of a pair.

    Attributes:
        before, between, after: ids in front of the premise, between, and behind the claim.
        second: token type of the claim and what is behind it.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    second: int = 0

    @property
    def size(self) -> int:
        """Tokens that are no text."""
        return len(self.before) + len(self.between) + len(self.after)


class PairTokenizer:
    """A folder's tokenizer: texts without, and frames with, control tokens."""

    def __init__(self, files: PinnedFiles) -> None:
        """Read it."""
        transformers = library("transformers", f"the model {files.name}")
        try:
            given = transformers.AutoTokenizer.from_pretrained(files.folder, local_files_only=True)
            text = given.backend_tokenizer.to_str()
            self._framing = _plain(text)
            self._texts = _plain(text)
        except Exception as error:  # any class of the libraries that read tokenizers
            raise failed(
                f"the tokenizer of {files.name} cannot be loaded", "transformers"
            ) from error
        self._texts.encode_special_tokens = True
        self.given = given
        self.pad = given.pad_token_id if given.pad_token_id is not None else 0
        self.typed = "token_type_ids" in given.model_input_names
        self.limit = int(given.model_max_length)

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, in which nothing is a control token."""
        try:
            found: list[int] = self._texts.encode(text, add_special_tokens=False).ids
        except Exception as error:  # tokenizers has no class of its own
            raise failed("a text cannot be cut into tokens", "tokenizers") from error
        return found

    def framing(self, text: str) -> tuple[int, ...]:
        """The tokens of a frame's own words, in which control tokens are such."""
        return tuple(self._framing.encode(text, add_special_tokens=False).ids)

    def pair_frame(self) -> PairFrame:
        """The frame that the tokenizer puts around two texts."""
        seen = self._framing.encode("a", "a")
        second = [place for place, text in enumerate(seen.sequence_ids) if text == 1]
        first = [place for place, text in enumerate(seen.sequence_ids) if text == 0]
        if not first or not second:
            raise EngineError("the tokenizer does not know the letter a", engine="tokenizers")
        return PairFrame(
            tuple(seen.ids[: first[0]]),
            tuple(seen.ids[first[-1] + 1 : second[0]]),
            tuple(seen.ids[second[-1] + 1 :]),
            seen.type_ids[second[0]],
        )

    def joined_frame(self, lead: str, separator: str, between: str = "") -> PairFrame:
        """The frame of one text that is premise, separator and claim."""
        alone = self._framing.encode("a")
        place = [at for at, text in enumerate(alone.sequence_ids) if text == 0]
        if not place:
            raise EngineError("the tokenizer does not know the letter a", engine="tokenizers")
        return PairFrame(
            (*alone.ids[: place[0]], *self.framing(lead)),
            (*self.framing(separator), *self.framing(between)),
            tuple(alone.ids[place[-1] + 1 :]),
        )


class PairVerifier:
    """Judges claims by running pairs of premise and claim through a network; safe under threads.

    Args:
        files: where network and tokenizer came from.
        words: the tokenizer.
        frame: what stands around the texts.
        forward: from tensors by name to a tensor of shape (pairs, outputs).
        run: sizes and device.
        limit: most tokens that the network has positions for, None for any number.
        algorithm: name and number of the way of reading.
        outputs: number of outputs, and the places of entailment and contradiction among them; None
            for a model that does not tell contradiction.
        thresholds: names of the thresholds, all at `DECIDED`.

    Attributes:
        identity: algorithm, model, commit, hash of the files, and the libraries' versions.
        thresholds: where a window entails or contradicts, and the sizes of a run.
        passage: longest passage that is wanted, in characters.

    Raises:
        ConfigError: the network leaves too few tokens for the texts.
    """

    def __init__(
        self, files: PinnedFiles, words: PairTokenizer, frame: PairFrame,
        forward: Callable[[dict[str, Any]], Any], run: NetworkRun, limit: int | None, *,
        algorithm: str, outputs: tuple[int, int, int | None], thresholds: Sequence[str],
    ) -> None:  # fmt: skip
        self._files, self._words, self._frame, self._forward = files, words, frame, forward
        self._run, self._outputs = run, outputs
        self._torch = library("torch", f"the model {files.name}")
        most = min(run.max_tokens, words.limit, limit or run.max_tokens)
        self._texts = most - frame.size
        if self._texts < LEAST_TOKENS // 2:
            raise ConfigError(
                f"the model {files.name} leaves {self._texts} tokens for premise and claim, wanted "
                f"at least {LEAST_TOKENS // 2}; raise max_tokens ({run.max_tokens}) or take another"
            )
        by = " ".join(f"{name} {installed(name)}" for name in ("transformers", "torch"))
        self.identity: Final = f"{algorithm} with {files} by {by}"
        numbers = {**dict.fromkeys(thresholds, DECIDED), "max_tokens": most}
        numbers |= {"overlap": TOKEN_OVERLAP, "batch_size": run.batch_size}
        prefix = algorithm.partition("@")[0]
        self.thresholds: Final[Mapping[str, float]] = MappingProxyType(
            {f"{prefix}_{name}": float(value) for name, value in numbers.items()}
        )
        self.passage: Final = run.passage
        self._lock = threading.Lock()

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on the best window of the passages, by the claim's weakest piece.

        Spec: CRP-SPEC-005 §6.2
        """
        if not passages:
            raise ConfigError("a verifier was given no passage, wanted at least one")
        tokens = self._words.ids(claim)
        if not tokens:
            return UNREAD
        texts = [self._words.ids(passage) for passage in passages]
        pieces: list[Judgement] = []
        for start, end in windows(len(tokens), self._texts // 2, TOKEN_OVERLAP // 2):
            room = self._texts - (end - start)
            places = [
                (place, ids[a:b])
                for place, ids in enumerate(texts)
                for a, b in windows(len(ids), room, min(TOKEN_OVERLAP, room // 4))
            ]
            rows = self._rows([ids for _, ids in places], tokens[start:end])
            pieces.append(
                best([self._score(row, at) for (at, _), row in zip(places, rows, strict=True)])
            )
        return weakest(pieces)

    def _score(self, row: Rows, place: int) -> WindowScore:
        count, entailing, opposing = self._outputs
        if len(row) != count:
            raise EngineError(
                f"the model gave {len(row)} outputs, wanted {count}", engine="transformers"
            )
        opposed = 0.0 if opposing is None else probability(row, opposing)
        return WindowScore(probability(row, entailing), opposed, place)

    def _rows(self, premises: Sequence[list[int]], claim: list[int]) -> Rows:
        size = self._run.batch_size
        with self._lock:
            blocks = [
                self._batch(premises[at : at + size], claim) for at in range(0, len(premises), size)
            ]
        rows: Rows = np.concatenate(blocks)
        if not np.isfinite(rows).all():
            raise failed(f"the model {self._files.name} gave a number that is not finite", "torch")
        return rows

    def _batch(self, premises: Sequence[list[int]], claim: list[int]) -> Rows:
        frame, torch = self._frame, self._torch
        runs = [[*frame.before, *ids, *frame.between, *claim, *frame.after] for ids in premises]
        longest = max(len(ids) for ids in runs)
        ids = np.full((len(runs), longest), self._words.pad, dtype=np.int64)
        mask = np.zeros_like(ids)
        types = np.zeros_like(ids)
        behind = len(claim) + len(frame.after)
        for row, tokens in enumerate(runs):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
            types[row, len(tokens) - behind : len(tokens)] = frame.second
        given = {"input_ids": ids, "attention_mask": mask}
        if self._words.typed:
            given["token_type_ids"] = types
        try:
            with torch.inference_mode():
                feed = {
                    name: torch.from_numpy(block).to(self._run.device)
                    for name, block in given.items()
                }
                found = self._forward(feed).detach().to("cpu").double().numpy()
        except Exception as error:  # torch's classes share no base but Exception
            raise failed(
                f"a run of {len(runs)} pairs of at most {longest} tokens failed", "torch"
            ) from error
        rows: Rows = np.array(found, dtype=np.float64)
        if rows.ndim != 2 or len(rows) != len(runs):
            raise failed(f"the model gave shape {rows.shape} for {len(runs)} pairs", "transformers")
        return rows


def load_network(files: PinnedFiles, kind: str, run: NetworkRun) -> Any:
    """A network of transformers from verified files, in float32, ready to be run."""
    library("torch", f"the model {files.name}")
    transformers = library("transformers", f"the model {files.name}")
    try:
        loaded, told = getattr(transformers, kind).from_pretrained(
            files.folder, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # any class of the library, or of torch below it
        raise failed(f"the model {files.name} cannot be loaded", "transformers") from error
    missing = sorted(told.get("missing_keys", ()))
    if missing:
        raise failed(
            f"the model {files.name} lacks {len(missing)} weights, such as {missing[0]!r:.100}",
            "transformers",
        )
    return ready(loaded, run)


def ready(loaded: Any, run: NetworkRun) -> Any:
    """A network in float32, without training's chance, on its device."""
    try:
        return loaded.float().eval().to(run.device)
    except Exception as error:  # torch's classes share no base but Exception
        raise failed(f"device {run.device!r:.40} cannot be used", "torch") from error


def positions(config: Any) -> int | None:
    """How many tokens a network has positions for; None where positions are relative."""
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int):
        return None
    if getattr(config, "model_type", "") in _OFFSET_POSITIONS:
        padding = getattr(config, "pad_token_id", None)
        return most - (padding if isinstance(padding, int) else 1) - 1
    return most


def _plain(text: str) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_str(text)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
