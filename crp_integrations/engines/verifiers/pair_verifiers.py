"""Verifiers that score pairs of premise and claim: NLI, HHEM, MiniCheck, AlignScore.

Each runs a network of transformers from pinned files, or stands around an object that the caller
has loaded. No code that is published with a model is run.

Spec: CRP-SPEC-005 §6.2
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from crp_integrations.dpe.ports import Judgement
from crp_integrations.engines.cross_encoders import labels_of
from crp_integrations.engines.onnx import windows
from crp_integrations.engines.verifiers.model_files import (
    PinnedFiles,
    failed,
    library,
    pinned_files,
)
from crp_integrations.engines.verifiers.pair_network import (
    DECIDED,
    UNREAD,
    NetworkRun,
    PairTokenizer,
    PairVerifier,
    WindowScore,
    best,
    judgement,
    load_network,
    positions,
    ready,
    weakest,
)
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.language.text import split_sentences

NLI: Final = "nli@1"
# Names that published models give to their outputs.
ENTAILING: Final = tuple("entailment entail entails entailed aligned supported supports".split())
OPPOSING: Final = tuple("contradiction contradict contradicts contradicted refuted refutes".split())


class NliVerifier(PairVerifier):
    """Judges claims with a natural-language-inference model; deterministic on one machine.

    Args:
        model: folder with `config.json`, tokenizer and weights, or a hub's id with its commit.
        sha256: hash of the files, see `model_hash`.
        revision: the hub's commit, 40 hexadecimal digits.
        labels: names of the outputs in their order, where the config's `id2label` says nothing.
        run: sizes and device.

    Raises:
        ConfigError: an argument has no usable value, or no output means entailment.
        MissingExtra: transformers or torch is not installed.
        EngineError: the files have another hash, or cannot be loaded.
    """

    algorithm = NLI

    def __init__(
        self, model: str | Path, *, sha256: str, revision: str = "",
        labels: Sequence[str] | None = None, run: NetworkRun | None = None,
    ) -> None:  # fmt: skip
        run = run or NetworkRun()
        files = pinned_files(model, sha256, revision)
        words = PairTokenizer(files)
        loaded = load_network(files, "AutoModelForSequenceClassification", run)
        named = labels_of({"id2label": loaded.config.id2label}, "transformers")
        if labels is not None and len(labels) != len(named):
            raise ConfigError(f"{len(labels)} labels were given, the model has {len(named)}")
        names = tuple(labels or named)
        entailing, opposing = place_of(names, ENTAILING), place_of(names, OPPOSING)
        if entailing is None:
            raise ConfigError(
                f"the model's labels are {list(names)}; say with labels= which one is 'entailment'"
            )

        super().__init__(
            files, words, words.pair_frame(), lambda feed: loaded(**feed).logits, run,
            positions(loaded.config), algorithm=self.algorithm,
            outputs=(len(names), entailing, opposing), thresholds=("entailed", "contradicted"),
        )  # fmt: skip


def place_of(names: Sequence[str], known: Sequence[str]) -> int | None:
    """The place of the first known name, None when there is none of them.

    >>> place_of(["CONTRADICTION", "neutral", "Entailment"], ENTAILING)
    2
    """
    lowered = [name.casefold() for name in names]
    return next((lowered.index(name) for name in known if name in lowered), None)


# Premise and claim.
Pairs = Sequence[tuple[str, str]]
# Characters that pieces of a long passage share, at most.
CHARACTER_OVERLAP: Final = 200
UNCHECKED: Final = "files not checked"


class ScoredVerifier:
    """Judges claims by scores in [0, 1] of an object that the caller has loaded.

    What is not supported counts as neutral. The object's calls are made one at a time; a passage
    that is longer than it takes is given in overlapping pieces.

    Args:
        scores: one score for each pair of premise and claim.
        algorithm: name and number of the way of reading.
        identity: the caller's name for model and version.
        passage: longest passage that the object reads whole, in characters.

    Attributes:
        identity: algorithm and the name given by the caller, whose files nobody checked.
        thresholds: what its judgements are read with.
        passage: longest passage that the object reads whole, in characters.

    Raises:
        ConfigError: an argument has no usable value.
    """

    def __init__(
        self, scores: Callable[[Pairs], Sequence[float]], algorithm: str, identity: str, *,
        passage: int,
    ) -> None:  # fmt: skip
        if not identity:
            raise ConfigError("a verifier's identity is empty, wanted a name for model and version")
        if passage < 1:
            raise ConfigError(f"passage is {passage}, wanted at least 1")
        self._scores, self._name = scores, identity
        self.passage: Final = passage
        self.identity: Final = f"{algorithm} with {identity} ({UNCHECKED})"
        name = algorithm.partition("@")[0]
        self.thresholds: Final[Mapping[str, float]] = MappingProxyType(
            {f"{name}_supported": DECIDED, f"{name}_passage": float(passage)}
        )
        self._turn = threading.Lock()

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The judgement on the best piece of the passages.

        Spec: CRP-SPEC-005 §6.2
        """
        if not passages:
            raise ConfigError("a verifier was given no passage, wanted at least one")
        if not claim.strip():
            return UNREAD
        cut = pieces(passages, self.passage)
        try:
            with self._turn:
                given = self._scores([(text, claim) for _, text in cut])
            found = [float(score) for score in given]
        except Exception as error:  # any class of the library, or of torch below it
            raise EngineError(
                f"the verifier {self._name} failed with {type(error).__name__}", engine=self._name
            ) from error
        if len(found) != len(cut):
            raise EngineError(
                f"the verifier {self._name} gave {len(found)} scores for {len(cut)} pairs",
                engine=self._name,
            )
        wrong = [score for score in found if not 0.0 <= score <= 1.0]
        if wrong:
            raise EngineError(
                f"the verifier {self._name} gave the score {wrong[0]}, wanted one in [0, 1]",
                engine=self._name,
            )
        seen = [
            WindowScore(score, 0.0, place) for (place, _), score in zip(cut, found, strict=True)
        ]
        return best(seen)


def pieces(passages: Sequence[str], longest: int) -> list[tuple[int, str]]:
    """Passages in pieces of at most so many characters, with their positions; none is left out.

    >>> pieces(["abc", "defghij"], 4)
    [(0, 'abc'), (1, 'defg'), (1, 'efgh'), (1, 'ghij')]
    """
    overlap = min(CHARACTER_OVERLAP, longest // 2)
    return [
        (place, passage[start:end])
        for place, passage in enumerate(passages)
        for start, end in windows(len(passage), longest, overlap)
    ]


HHEM: Final = "hhem@1"
# The words that HHEM-2.1 was trained with, where its config does not repeat them.
PROMPT: Final = (
    "<pad> Determine if the hypothesis is true given the premise?\n\n"
    "Premise: {text1}\n\nHypothesis: {text2}"
)
# The weights' names in HHEM's own class.
_INNER: Final = "t5."
_TIED: Final = frozenset({"transformer.encoder.embed_tokens.weight", "transformer.shared.weight"})


class HhemVerifier(PairVerifier):
    """Judges claims with HHEM-2.1 or a cross-encoder of one output (HHEM-1).

    What is not consistent counts as neutral: one score cannot tell contradiction.

    Args:
        model: folder, or a hub's id with its commit.
        sha256: hash of the files, see `model_hash`.
        revision: the hub's commit.
        foundation: of HHEM-2.1, folder with `config.json` and tokenizer of the T5 that it was
            made from.
        foundation_sha256: hash of that folder.
        run: sizes and device.

    Raises:
        ConfigError: an argument has no usable value, or the model is of another kind.
        MissingExtra: transformers or torch is not installed.
        EngineError: the files have another hash, or cannot be loaded.
    """

    def __init__(
        self, model: str | Path, *, sha256: str, revision: str = "",
        foundation: str | Path | None = None, foundation_sha256: str = "",
        run: NetworkRun | None = None,
    ) -> None:  # fmt: skip
        run = run or NetworkRun()
        files = pinned_files(model, sha256, revision)
        config = _config(files)
        if str(config.get("model_type", "")).casefold() == "hhemv2":
            if foundation is None:
                raise ConfigError(
                    f"HHEM-2.1 needs foundation=, a folder with config and tokenizer of "
                    f"{config.get('foundation', 'google/flan-t5-base')!r:.80}"
                )
            base = pinned_files(foundation, foundation_sha256)
            words = PairTokenizer(base)
            lead, between = _prompt(config)
            frame = words.joined_frame(lead, "", between)
            loaded = _t5(files, base, run)
            limit, outputs, algorithm = None, (2, 1, None), f"{HHEM} on {base}"
        else:
            words = PairTokenizer(files)
            frame = words.pair_frame()
            loaded = load_network(files, "AutoModelForSequenceClassification", run)
            if loaded.config.num_labels != 1:
                raise ConfigError(
                    f"the model {files.name} has {loaded.config.num_labels} outputs, wanted 1; "
                    "NliVerifier reads several"
                )
            limit, outputs, algorithm = positions(loaded.config), (1, 0, None), HHEM

        def forward(feed: dict[str, Any]) -> Any:
            logits = loaded(**feed).logits
            # HHEM-2.1 classifies tokens, of which the first speaks for the pair.
            return logits if logits.ndim == 2 else logits[:, 0, :]

        super().__init__(
            files, words, frame, forward, run, limit,
            algorithm=algorithm, outputs=outputs, thresholds=("consistent",),
        )  # fmt: skip


def around_hhem(model: Any, identity: str, *, passage: int = 4_000) -> ScoredVerifier:
    """A verifier around an object with HHEM's `predict(pairs)`; its files are not checked."""
    return ScoredVerifier(lambda pairs: model.predict(list(pairs)), HHEM, identity, passage=passage)


def _prompt(config: Mapping[str, Any]) -> tuple[str, str]:
    """The words before the premise, and between it and the claim."""
    lead, found, rest = str(config.get("prompt") or PROMPT).partition("{text1}")
    between, second, behind = rest.partition("{text2}")
    if not (found and second) or behind.strip():
        raise EngineError("the prompt of HHEM does not end with its two texts", engine="hhem")
    # A tokenizer of T5 puts the space in front of the next word.
    return lead.rstrip(), between.rstrip()


def _config(files: PinnedFiles) -> Mapping[str, Any]:
    try:
        found = json.loads((files.folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"config.json of {files.name} cannot be read") from error
    return found if isinstance(found, dict) else {}


def _t5(files: PinnedFiles, base: PinnedFiles, run: NetworkRun) -> Any:
    """HHEM's network, without the code that it is published with."""
    library("torch", f"the model {files.name}")
    transformers = library("transformers", f"the model {files.name}")
    try:
        safetensors = library("safetensors.torch", f"the model {files.name}")
        config = transformers.AutoConfig.from_pretrained(base.folder, local_files_only=True)
        config.num_labels = 2
        loaded = transformers.T5ForTokenClassification(config)
        given = safetensors.load_file(files.folder / "model.safetensors")
        weights = {name.removeprefix(_INNER): value for name, value in given.items()}
        told = loaded.load_state_dict(weights, strict=False)
    except Exception as error:  # any class of the libraries
        raise failed(f"the model {files.name} cannot be loaded", "transformers") from error
    # The table of tokens has two names and is saved under one of them.
    tied = _TIED & weights.keys()
    wrong = [name for name in told.missing_keys if name not in _TIED or not tied]
    wrong += list(told.unexpected_keys)
    if wrong:
        raise failed(
            f"{len(wrong)} weights of {files.name} do not fit its foundation, the first is "
            f"{wrong[0]!r:.100}",
            "transformers",
        )
    return ready(loaded, run)


MINICHECK: Final = "minicheck@1"
LEAD: Final = "predict: "
# What T5 answers with, by its vocabulary: unsupported, supported.
ANSWERS: Final = (3, 209)


class MiniCheckVerifier(PairVerifier):
    """Judges claims with weights of MiniCheck; deterministic on one machine.

    What is not supported counts as neutral: MiniCheck does not tell contradiction.

    Args:
        model: folder, or a hub's id with its commit.
        sha256: hash of the files, see `model_hash`.
        revision: the hub's commit.
        run: sizes and device.

    Raises:
        ConfigError: an argument has no usable value, or the model has not two outputs.
        MissingExtra: transformers or torch is not installed.
        EngineError: the files have another hash, or cannot be loaded.
    """

    def __init__(
        self, model: str | Path, *, sha256: str, revision: str = "", run: NetworkRun | None = None
    ) -> None:
        run = run or NetworkRun()
        files = pinned_files(model, sha256, revision)
        words = PairTokenizer(files)
        torch = library("torch", f"the model {files.name}")
        transformers = library("transformers", f"the model {files.name}")
        end = words.given.eos_token or words.given.sep_token
        if not end:
            raise ConfigError(f"the tokenizer of {files.name} has no end mark")
        try:
            config = transformers.AutoConfig.from_pretrained(files.folder, local_files_only=True)
        except Exception as error:  # any class of the library
            raise EngineError(f"config.json of {files.name} cannot be read") from error
        written = config.is_encoder_decoder
        kind = "AutoModelForSeq2SeqLM" if written else "AutoModelForSequenceClassification"
        loaded = load_network(files, kind, run)
        if written and loaded.config.vocab_size <= max(ANSWERS):
            raise ConfigError(
                f"the model {files.name} has {loaded.config.vocab_size} tokens, wanted a T5"
            )
        if not written and loaded.config.num_labels != 2:
            raise ConfigError(
                f"the model {files.name} has {loaded.config.num_labels} outputs, wanted 2"
            )

        def forward(feed: dict[str, Any]) -> Any:
            if not written:
                return loaded(**feed).logits
            start = torch.zeros((len(feed["input_ids"]), 1), dtype=torch.long).to(run.device)
            return loaded(**feed, decoder_input_ids=start).logits[:, 0, list(ANSWERS)]

        # The space behind the lead belongs to the document's first word.
        frame = words.joined_frame(LEAD.rstrip() if written else "", end)
        super().__init__(
            files, words, frame, forward, run, None if written else positions(config),
            algorithm=MINICHECK, outputs=(2, 1, None), thresholds=("supported",),
        )  # fmt: skip


def around_minicheck(scorer: Any, identity: str, *, passage: int = 4_000) -> ScoredVerifier:
    """A verifier around an object with MiniCheck's `score(docs=, claims=)`; files are not checked.

    This is the way to Bespoke-MiniCheck-7B, which runs on vLLM.
    """

    def scores(pairs: Pairs) -> Any:
        return scorer.score(docs=[doc for doc, _ in pairs], claims=[claim for _, claim in pairs])[1]

    return ScoredVerifier(scores, MINICHECK, identity, passage=passage)


ALIGNSCORE: Final = "alignscore@1"


class AlignScoreVerifier(NliVerifier):
    """Judges claims by AlignScore's rule over a three-way model; arguments as `NliVerifier`.

    The passage that decides is that of the sentence which is aligned least.
    """

    algorithm = ALIGNSCORE

    def judge(self, claim: str, passages: Sequence[str]) -> Judgement:
        """The mean over the claim's sentences, each judged by its best window.

        Spec: CRP-SPEC-005 §6.2
        """
        sentences = [span.of(claim) for span in split_sentences(claim)] or [claim]
        words = [super(AlignScoreVerifier, self).judge(one, passages) for one in sentences]
        count = len(words)
        return judgement(
            WindowScore(
                sum(word.entailment for word in words) / count,
                sum(word.contradiction for word in words) / count,
                weakest(words).passage,
            )
        )


def around_alignscore(scorer: Any, identity: str, *, passage: int = 2_000) -> ScoredVerifier:
    """A verifier around an object with AlignScore's `score(contexts=, claims=)`; files
    unchecked.
    """

    def scores(pairs: Pairs) -> Any:
        return scorer.score(
            contexts=[context for context, _ in pairs], claims=[claim for _, claim in pairs]
        )

    return ScoredVerifier(scores, ALIGNSCORE, identity, passage=passage)
