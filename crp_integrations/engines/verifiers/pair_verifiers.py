"""Verifiers that score pairs of premise and claim: NLI, HHEM, MiniCheck.

`NetworkVerifier` runs a transformers classifier from pinned files without running their code.
Every token of every passage is read in some window; "[SEP]" or "</s>" in a text is plain text.

Spec: CRP-SPEC-005 §6.2 (decision D6)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers.processors import TemplateProcessing

from crp_integrations.dpe.ports import Judgement
from crp_integrations.engines.onnx import labels_of, probability, tokenizer_of, windows
from crp_integrations.engines.verifiers.model_catalogue import (
    PinnedFiles,
    failed,
    installed,
    library,
    pinned_files,
)
from crp_integrations.errors import ConfigError, EngineError

# Minimum probability at which a window entails, or contradicts, a claim.
DECIDED: Final = 0.5
PLACES: Final = 6  # decimal places of a judgement
# The judgement on an empty claim: nothing was read, so it is neutral.
UNREAD: Final = Judgement(0.0, 0.0, 1.0, 0)
# Tokens that neighbouring windows share.
TOKEN_OVERLAP: Final = 16
LEAST_TOKENS: Final = 96
# Types of networks whose positions start after the padding id, so that fewer are usable.
_OFFSET_POSITIONS: Final = frozenset({"roberta", "xlm-roberta", "camembert", "xlm-roberta-xl"})
# Names of the outputs of published models.
ENTAILING: Final = tuple("entailment entail entails entailed aligned supported supports".split())
OPPOSING: Final = tuple("contradiction contradict contradicts contradicted refuted refutes".split())
Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PairFamily:
    """How the outputs of one family of networks are read.

    Attributes:
        thresholds: names of its decisions, all with the threshold `DECIDED`.
        outputs: number of outputs; 0 if the config names them, one of them entailment.
        joined: whether premise and claim are one text with a separator token, as in MiniCheck.
    """

    thresholds: tuple[str, ...]
    outputs: int = 0
    joined: bool = False


FAMILIES: Final[Mapping[str, PairFamily]] = MappingProxyType(
    {
        "nli": PairFamily(("entailed", "contradicted")),
        "hhem": PairFamily(("consistent",), outputs=1),
        "minicheck": PairFamily(("supported",), outputs=2, joined=True),
    }
)


@dataclass(frozen=True, slots=True)
class WindowScore:
    """A model's scores for one window.

    Attributes:
        entailment, contradiction: probabilities whose sum is at most 1.
        passage: position of the passage that the window was cut from.
    """

    entailment: float
    contradiction: float
    passage: int


def best(windows: Sequence[WindowScore]) -> Judgement:
    """The judgement of the deciding window.

    This is the window with the highest entailment, if it entails the claim; else the one with the
    highest contradiction, if it contradicts; else again the first one. The first of equals counts.

    >>> best([WindowScore(0.1, 0.0, 0), WindowScore(0.1, 0.7, 1)]).passage
    1
    """
    entailing = max(windows, key=lambda seen: seen.entailment)
    if entailing.entailment >= DECIDED:
        return judgement(entailing)
    opposing = max(windows, key=lambda seen: seen.contradiction)
    return judgement(opposing if opposing.contradiction >= DECIDED else entailing)


def weakest(pieces: Sequence[Judgement]) -> Judgement:
    """The judgement with the lowest entailment; among equals, the highest contradiction."""
    return min(pieces, key=lambda piece: (piece.entailment, -piece.contradiction))


def judgement(seen: WindowScore) -> Judgement:
    """A window's scores, rounded, with the remainder to 1 as neutral."""
    entailment, contradiction = seen.entailment, seen.contradiction
    # Written so that NaN fails as well.
    if not (entailment >= 0.0 and contradiction >= 0.0 and entailment + contradiction <= 1.0001):
        raise EngineError(
            f"a verifier gave entailment {entailment} and contradiction {contradiction}, wanted "
            "probabilities"
        )
    entailment = min(1.0, round(entailment, PLACES))
    contradiction = min(round(1.0 - entailment, PLACES), round(contradiction, PLACES))
    neutral = round(1.0 - entailment - contradiction, PLACES)
    return Judgement(entailment, contradiction, max(0.0, neutral), seen.passage)


class ModelVerifier:
    """Base of verifiers that run a model; the model is called one at a time.

    Attributes:
        identity: algorithm, model and libraries; every report contains it.
        thresholds: thresholds of its judgements, and the sizes of a run.
        passage: maximum length of a passage, in characters.
    """

    def __init__(self, identity: str, thresholds: Mapping[str, float], passage: int) -> None:
        self.identity: Final = identity
        self.thresholds: Final[Mapping[str, float]] = MappingProxyType(dict(thresholds))
        self.passage: Final = passage
        self._turn = threading.Lock()

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on a claim by the deciding window of the passages.

        Spec: CRP-SPEC-005 §6.2
        """
        if not passages:
            raise ConfigError("a verifier was given no passage, wanted at least one")
        return self._read(claim, passages) if claim.strip() else UNREAD

    def _read(self, claim: str, passages: Sequence[str]) -> Judgement:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class NetworkRun:
    """How a network is run.

    Attributes:
        max_tokens: maximum tokens of one pair, control tokens included; lowered to the network's
            number of positions.
        batch_size: pairs in one run; another size can change the last bits of a score.
        device: torch device.
        passage: maximum length of a passage from stage 4, in characters; longer ones are still
            read in windows.
    """

    max_tokens: int = 512
    batch_size: int = 8
    device: str = "cpu"
    passage: int = 4_000

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", LEAST_TOKENS), ("batch_size", 1), ("passage", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is {getattr(self, name)}, wanted at least {least}")


class NetworkVerifier(ModelVerifier):
    """Judges claims with a classifier of pairs; deterministic on one machine.

    Unsupported claims count as neutral if the family does not recognise contradictions. A claim
    that is longer than half a run is read in pieces, and the weakest piece counts.

    Args:
        family: a name of `FAMILIES`.
        model: folder with `config.json`, tokenizer and weights, or a hub's id with its commit.
        sha256: hash of the files, see `model_hash`.
        revision: the hub's commit, 40 hexadecimal digits.
        labels: names of the outputs in their order, if the config's `id2label` lacks them.
        run: sizes and device.
    """

    def __init__(
        self, family: str, model: str | Path, *, sha256: str, revision: str = "",
        labels: Sequence[str] | None = None, run: NetworkRun | None = None,
    ) -> None:  # fmt: skip
        if family not in FAMILIES:
            raise ConfigError(f"family is {family!r:.40}, wanted one of {', '.join(FAMILIES)}")
        self._family, self._run = FAMILIES[family], run or NetworkRun()
        self._files = files = pinned_files(model, sha256, revision)
        self._torch = library("torch", f"the model {files.name}")
        tokenizer = _loaded(files, "AutoTokenizer")
        self._network = _network(files, self._run)
        self._outputs = self._places(labels)
        self._pairs = _plain(tokenizer, files)
        self._texts = _plain(tokenizer, files)
        if self._family.joined:
            _join(self._pairs, tokenizer, files)
        self._padding = tokenizer.pad_token_id or 0
        self._typed = "token_type_ids" in tokenizer.model_input_names
        limit = _positions(self._network.config) or self._run.max_tokens
        most = min(self._run.max_tokens, int(tokenizer.model_max_length), limit)
        self._room = most - len(self._pairs.encode("", "").ids)
        if self._room < LEAST_TOKENS // 2:
            raise ConfigError(
                f"the model {files.name} leaves {self._room} tokens for premise and claim, wanted "
                f"at least {LEAST_TOKENS // 2}; raise max_tokens ({self._run.max_tokens}) or take "
                "another"
            )
        # A claim's piece takes at most half a run, so only the premise is cut.
        self._pairs.enable_truncation(most, stride=TOKEN_OVERLAP, strategy="only_first")
        numbers = {**dict.fromkeys(self._family.thresholds, DECIDED), "max_tokens": most}
        numbers |= {"overlap": TOKEN_OVERLAP, "batch_size": self._run.batch_size}
        by = " ".join(f"{name} {installed(name)}" for name in ("transformers", "torch"))
        super().__init__(
            f"{family}@1 with {files} by {by}",
            {f"{family}_{name}": float(value) for name, value in numbers.items()},
            self._run.passage,
        )

    def _places(self, labels: Sequence[str] | None) -> tuple[int, int, int | None]:
        """The number of outputs, and the indices of entailment and contradiction."""
        count = int(self._network.config.num_labels)
        wanted = self._family.outputs
        if wanted:
            if count != wanted:
                raise ConfigError(
                    f"the model {self._files.name} has {count} outputs, wanted {wanted}"
                    + ("; the family 'nli' reads several" if count > wanted else "")
                )
            return wanted, wanted - 1, None
        named = labels_of({"id2label": self._network.config.id2label}, "transformers")
        if labels is not None and len(labels) != len(named):
            raise ConfigError(f"{len(labels)} labels were given, the model has {len(named)}")
        names = tuple(labels or named)
        entailing = place_of(names, ENTAILING)
        if entailing is None:
            raise ConfigError(
                f"the model's labels are {list(names)}; say with labels= which one is 'entailment'"
            )
        return len(names), entailing, place_of(names, OPPOSING)

    def _read(self, claim: str, passages: Sequence[str]) -> Judgement:
        try:
            offsets = self._texts.encode(claim, add_special_tokens=False).offsets
            if not offsets:
                return UNREAD
            pieces = []
            for start, end in windows(len(offsets), self._room // 2, TOKEN_OVERLAP):
                piece = claim[offsets[start][0] : offsets[end - 1][1]]
                encoded = [self._pairs.encode(passage, piece) for passage in passages]
                pieces.append(
                    [
                        (at, cut)
                        for at, encoding in enumerate(encoded)
                        for cut in (encoding, *encoding.overflowing)
                    ]
                )
        except Exception as error:  # tokenizers has no class of its own
            raise failed("a text cannot be cut into tokens", "tokenizers") from error
        return weakest([best(self._scores(piece)) for piece in pieces])

    def _scores(self, cuts: Sequence[tuple[int, tokenizers.Encoding]]) -> list[WindowScore]:
        size = self._run.batch_size
        with self._turn:
            blocks = [self._batch(cuts[at : at + size]) for at in range(0, len(cuts), size)]
        rows: Rows = np.concatenate(blocks)
        if not np.isfinite(rows).all():
            raise failed(f"the model {self._files.name} gave a number that is not finite", "torch")
        count, entailing, opposing = self._outputs
        if rows.shape != (len(cuts), count):
            raise failed(f"the model gave shape {rows.shape} for {len(cuts)} pairs", "transformers")
        return [
            WindowScore(
                probability(row, entailing),
                0.0 if opposing is None else probability(row, opposing),
                at,
            )
            for (at, _), row in zip(cuts, rows, strict=True)
        ]

    def _batch(self, cuts: Sequence[tuple[int, tokenizers.Encoding]]) -> Rows:
        longest = max(len(cut.ids) for _, cut in cuts)
        ids = np.full((len(cuts), longest), self._padding, dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, (_, cut) in enumerate(cuts):
            ids[row, : len(cut.ids)] = cut.ids
            mask[row, : len(cut.ids)] = 1
            types[row, : len(cut.ids)] = cut.type_ids
        inputs = {"input_ids": ids, "attention_mask": mask}
        if self._typed:
            inputs["token_type_ids"] = types
        try:
            with self._torch.inference_mode():
                feed = {
                    name: self._torch.from_numpy(block).to(self._run.device)
                    for name, block in inputs.items()
                }
                logits = self._network(**feed).logits.detach().to("cpu").double().numpy()
        except Exception as error:  # torch's classes share no base but Exception
            raise failed(
                f"a run of {len(cuts)} pairs of at most {longest} tokens failed", "torch"
            ) from error
        return np.array(logits, dtype=np.float64)


def place_of(names: Sequence[str], known: Sequence[str]) -> int | None:
    """The index of the first known name; None if no name is known.

    >>> place_of(["CONTRADICTION", "neutral", "Entailment"], ENTAILING)
    2
    """
    lowered = [name.casefold() for name in names]
    return next((lowered.index(name) for name in known if name in lowered), None)


def _loaded(files: PinnedFiles, kind: str, **options: Any) -> Any:
    transformers = library("transformers", f"the model {files.name}")
    try:
        return getattr(transformers, kind).from_pretrained(
            files.folder, local_files_only=True, trust_remote_code=False, **options
        )
    except Exception as error:  # any class of the library, or of torch below it
        what = "tokenizer of" if kind == "AutoTokenizer" else "model"
        raise failed(f"the {what} {files.name} cannot be loaded", "transformers") from error


def _network(files: PinnedFiles, run: NetworkRun) -> Any:
    """A classifier from verified files, in float32 and evaluation mode, on its device."""
    network, report = _loaded(files, "AutoModelForSequenceClassification", output_loading_info=True)
    missing = sorted(report.get("missing_keys", ()))
    if missing:
        raise failed(
            f"the model {files.name} lacks {len(missing)} weights, such as {missing[0]!r:.100}",
            "transformers",
        )
    try:
        return network.float().eval().to(run.device)
    except Exception as error:  # torch's classes share no base but Exception
        raise failed(f"device {run.device!r:.40} cannot be used", "torch") from error


def _plain(tokenizer: Any, files: PinnedFiles) -> tokenizers.Tokenizer:
    """A copy of a folder's tokenizer that never makes control tokens from a text."""
    try:
        return tokenizer_of(tokenizer.backend_tokenizer.to_str().encode())
    except AttributeError as error:
        raise failed(f"the tokenizer of {files.name} cannot be loaded", "transformers") from error


def _join(pairs: tokenizers.Tokenizer, tokenizer: Any, files: PinnedFiles) -> None:
    """Make pairs one text with a single separator token between premise and claim."""
    marks = {
        tokenizer.cls_token: tokenizer.cls_token_id,
        tokenizer.sep_token: tokenizer.sep_token_id,
    }
    if None in marks:
        raise ConfigError(f"the tokenizer of {files.name} has no tokens for beginning and end")
    start, end = tokenizer.cls_token, tokenizer.sep_token
    pairs.post_processor = TemplateProcessing(
        single=[start, "$A", end],
        pair=[start, "$A", end, "$B", end],
        special_tokens=[*marks.items()],
    )


def _positions(config: Any) -> int | None:
    """The number of tokens that a network has positions for; None if positions are relative."""
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int):
        return None
    if getattr(config, "model_type", "") in _OFFSET_POSITIONS:
        padding = getattr(config, "pad_token_id", None)
        return most - (padding if isinstance(padding, int) else 1) - 1
    return most
