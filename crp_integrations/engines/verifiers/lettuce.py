"""LettuceDetect: which tokens of an answer the context does not support.

The detector reads passages together. If they do not fit at once, it takes each token's worst
group, so that any unrelated passage would make a claim look unsupported. Here, groups that
certainly fit are read one by one, and each token's best group counts. The claim's score is that
of its least supported token.

Spec: CRP-SPEC-005 §6.2
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from crp_integrations.dpe.ports import Judgement
from crp_integrations.engines.onnx import windows
from crp_integrations.engines.verifiers.model_catalogue import (
    failed,
    installed,
    library,
    pinned_files,
)
from crp_integrations.engines.verifiers.pair_verifiers import (
    DECIDED,
    ModelVerifier,
    NetworkRun,
    WindowScore,
    judgement,
)
from crp_integrations.errors import ConfigError

ALGORITHM: Final = "lettucedetect@1"
LIBRARY: Final = "lettucedetect"
# Upper bounds for the tokens of the library's own text around the passages, and of its text
# before each passage.
FRAME: Final = 128
LABEL: Final = 16
# A character has at most this many UTF-8 bytes, and a tokenizer at most one token per byte.
_BYTES: Final = 4
# Characters that pieces of a long passage share.
CHARACTER_OVERLAP: Final = 200
UNCHECKED: Final = "files not checked"


class LettuceVerifier(ModelVerifier):
    """Judges claims with a token classifier of LettuceDetect; deterministic on one machine.

    Unsupported claims count as neutral, since the detector does not recognise contradictions.

    Args:
        model: folder, or a hub's id with its commit; not needed with `detector`.
        sha256: hash of the files, see `model_hash`.
        revision: the hub's commit.
        detector: a `HallucinationDetector(method="transformer")` that the caller has loaded; its
            files are not checked, and the identity says so.
        identity: a name for model and version, required with `detector`.
        run: sizes and device; `max_tokens` is the detector's limit.
    """

    def __init__(
        self, model: str | Path | None = None, *, sha256: str = "", revision: str = "",
        detector: Any = None, identity: str = "", run: NetworkRun | None = None,
    ) -> None:  # fmt: skip
        run = run or NetworkRun(max_tokens=4_096)
        if run.max_tokens <= 2 * FRAME:
            raise ConfigError(
                f"max_tokens is {run.max_tokens}, LettuceDetect wants more than {2 * FRAME}"
            )
        if (model is None) == (detector is None):
            raise ConfigError("LettuceDetect wants either a model or a detector")
        if detector is not None:
            if not identity:
                raise ConfigError("a detector's identity is empty, wanted a name for its model")
            self._detector, named = detector, f"{identity} ({UNCHECKED})"
        else:
            assert model is not None
            files = pinned_files(model, sha256, revision)
            self._detector, named = _opened(files.folder, run), str(files)
        words = getattr(getattr(self._detector, "detector", None), "tokenizer", None)
        self._marks = frozenset(getattr(words, "all_special_tokens", ()))
        by = " ".join(f"{name} {installed(name)}" for name in (LIBRARY, "transformers", "torch"))
        # Bytes of passages and claim that certainly fit a run.
        self._room = run.max_tokens - FRAME
        super().__init__(
            f"{ALGORITHM} with {named} by {by}",
            {
                "lettucedetect_unsupported": DECIDED,
                "lettucedetect_max_tokens": float(run.max_tokens),
            },
            min(run.passage, self._room // _BYTES),
        )

    def _read(self, claim: str, passages: Sequence[str]) -> Judgement:
        size = len(claim.encode())
        if size > self._room // 2:
            raise ConfigError(
                f"a claim has {size} bytes, wanted at most {self._room // 2} with max_tokens "
                f"{self._room + FRAME}"
            )
        groups = _groups(passages, self._room - size)
        rows = [self._doubts(claim, [text for _, text in group]) for group in groups]
        if len({len(row) for row in rows}) != 1 or not len(rows[0]):
            raise failed("a claim's number of tokens differs between passages", LIBRARY)
        doubts = np.array(rows)
        nearest = int(np.argmin(doubts.max(axis=1)))
        doubt = float(doubts.min(axis=0).max())
        return judgement(WindowScore(1.0 - doubt, 0.0, groups[nearest][0][0]))

    def _doubts(self, claim: str, context: list[str]) -> list[float]:
        """For each token of the claim, the probability that the context does not support it."""
        try:
            with self._turn:
                tokens = self._detector.predict(
                    context=context, answer=claim, question=None, output_format="tokens"
                )
            # The end token after the claim is in the list, but is not part of the claim.
            if tokens and tokens[-1].get("token") in self._marks:
                tokens = tokens[:-1]
            doubts = [float(token["prob"]) for token in tokens]
        except Exception as error:  # any class of the library, or of torch below it
            raise failed(f"a run over {len(context)} passages failed", LIBRARY) from error
        if not all(0.0 <= doubt <= 1.0 for doubt in doubts):
            raise failed("a token has a number that is not a probability", LIBRARY)
        return doubts


def _groups(passages: Sequence[str], room: int) -> list[list[tuple[int, str]]]:
    """Passages with their positions, in groups that fit; longer ones are cut, none is left out."""
    groups: list[list[tuple[int, str]]] = []
    free = 0
    for place, text in pieces(passages, max(1, (room - LABEL) // _BYTES)):
        size = len(text.encode()) + LABEL
        if not groups or size > free:
            groups.append([])
            free = room
        groups[-1].append((place, text))
        free -= size
    return groups


def pieces(passages: Sequence[str], longest: int) -> list[tuple[int, str]]:
    """Cut passages into pieces of at most `longest` characters, each with its passage's position.

    >>> pieces(["abc", "defghij"], 4)
    [(0, 'abc'), (1, 'defg'), (1, 'efgh'), (1, 'ghij')]
    """
    overlap = min(CHARACTER_OVERLAP, longest // 2)
    return [
        (place, passage[start:end])
        for place, passage in enumerate(passages)
        for start, end in windows(len(passage), longest, overlap)
    ]


def _opened(folder: Path, run: NetworkRun) -> Any:
    lettucedetect = library(LIBRARY, "the verifier LettuceDetect", extra=LIBRARY)
    torch = library("torch", "the verifier LettuceDetect")
    try:
        detector = lettucedetect.HallucinationDetector(
            method="transformer", model_path=str(folder), max_length=run.max_tokens,
            device=torch.device(run.device), local_files_only=True,
        )  # fmt: skip
        detector.detector.model.float()
        # "[SEP]" in a text is plain text, so that content cannot insert control tokens.
        detector.detector.tokenizer.split_special_tokens = True
    except Exception as error:  # any class of the library, or of torch below it
        raise failed(f"the model {folder.name} cannot be loaded", LIBRARY) from error
    return detector
