"""Who reads answers in tests of a relay: a scripted judge, or the document's own arithmetic."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from crp_integrations.dpe.settings import DpeSettings
from crp_integrations.messages import ModelCall, Reply
from tests.judges import claims_of, material

LITERAL = DpeSettings.preset("literal")
# The same, where a bag of words stands for an embedder: its cosines are lower.
MEASURED = LITERAL.model_copy(
    update={
        "grounded": 0.50,
        "mixed": 0.40,
        "quality": LITERAL.quality.model_copy(update={"covered": 0.35}),
    }
)
SUPPORTED, CONTRADICTED, UNSUPPORTED = "SUPPORTED", "CONTRADICTED", "UNSUPPORTED"
KINDS = {CONTRADICTED: "NUMBER", UNSUPPORTED: "OVERREACH"}


class ScriptedJudge:
    """Gives every claim a status, with a quotation that the claim shares words with.

    Args:
        status: of every claim, or by words that a claim holds; of other claims SUPPORTED.
        needs: whether each part of the question is answered, in order: all of the claims answer it.
    """

    def __init__(
        self, status: str | Mapping[str, str] = SUPPORTED, needs: Sequence[bool] = ()
    ) -> None:
        self._by_words = {"": status} if isinstance(status, str) else dict(status)
        self._needs = tuple(needs)
        self.calls: list[ModelCall] = []

    def call(self, call: ModelCall) -> Reply:
        """The verdicts on the claims of a call."""
        self.calls.append(call)
        asked = material(message.content for message in call.messages)
        assert asked is not None, "this is no call of a judge"
        claims = claims_of(asked)
        reply = {
            "id": asked["id"],
            "claims": [self._verdict(number, claim, asked) for number, claim in claims],
            "unnumbered": [],
            "needs": [
                {"n": n, "answered": answered, "by": [number for number, _ in claims] * answered}
                for n, answered in enumerate(self._needs, 1)
            ],
            "conflicts": [],
        }
        return Reply(text=json.dumps(reply), model=call.model)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        return self.call(call)

    def _verdict(self, number: int, claim: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        named = (status for words, status in self._by_words.items() if words in claim)
        status = next(named, SUPPORTED)
        verdict: dict[str, Any] = {
            "n": number, "status": status, "kind": KINDS.get(status), "wrong": "", "fix": "",
            "quotes": [], "reason": "",
        }  # fmt: skip
        if status in (SUPPORTED, CONTRADICTED):
            passage, text = max(asked["passages"], key=lambda one: _shared(claim, one[1]))
            verdict["quotes"] = [{"in": str(passage), "text": text}]
        return verdict


def scripted_judge(
    status: str | Mapping[str, str] = SUPPORTED, needs: Sequence[bool] = ()
) -> ScriptedJudge:
    """A judge that gives every claim a status, or those a status that hold certain words."""
    return ScriptedJudge(status, needs)


def _shared(claim: str, text: str) -> int:
    return len(set(re.findall(r"\w+", claim.lower())) & set(re.findall(r"\w+", text.lower())))
