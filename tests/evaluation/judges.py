"""A judge that knows which words are wrong, as a model object."""

from __future__ import annotations

import json
import threading
from typing import Any

from crp_integrations.messages import ModelCall, Reply
from tests.dpe.judging import asked, claims_of, quoted


class WordJudge:
    """Claims with one of the wrong words are contradicted by the first words of passage 1.

    Attributes:
        most: calls that were under way at the same time, at most.
        calls: the material of each call.
    """

    model_name = "word-judge"

    def __init__(self, *wrong: str, broken: bool = False) -> None:
        self._wrong, self._broken = wrong, broken
        self.calls: list[dict[str, Any]] = []
        self.most = self._open = 0
        self._lock = threading.Lock()

    def call(self, call: ModelCall) -> Reply:
        with self._lock:
            self._open += 1
            self.most = max(self.most, self._open)
        try:
            return Reply(text=self._said(asked(call)), model=self.model_name)
        finally:
            with self._lock:
                self._open -= 1

    async def acall(self, call: ModelCall) -> Reply:
        return self.call(call)

    def stream(self, call: ModelCall) -> Any:
        raise NotImplementedError

    astream = stream

    def _said(self, data: dict[str, Any]) -> str:
        self.calls.append(data)
        if self._broken:
            return "I would rather not."
        first = " ".join(data["passages"][0][1].split()[:4])
        verdicts = []
        for number, text in claims_of(data):
            wrong = next((word for word in self._wrong if word in text), None)
            verdict = {"n": number, "status": "SUPPORTED", "quotes": quoted((1, first))}
            if wrong:
                verdict |= {"status": "CONTRADICTED", "kind": "NUMBER", "wrong": wrong}
            verdicts.append(verdict)
        return json.dumps({"id": data["id"], "claims": verdicts, "unnumbered": []})
