"""A judge behind a loopback server: it reads what it is sent and answers by the claims' texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from crp_integrations.messages import ModelCall, Reply
from tests.servers import Double, Recorded, openai_double

NAME = "openai/judge-1"
MODEL = "judge-1"
Verdicts = Callable[[Mapping[str, Any]], dict[str, Any]]


def material(texts: Iterable[str]) -> dict[str, Any] | None:
    """What a judge is asked, of the messages of a call; None of a call that is no judge's."""
    for text in texts:
        at = text.find('{"id":"')
        if at >= 0 and '"answer":' in text:
            found: dict[str, Any] = json.JSONDecoder().raw_decode(text, at)[0]
            return found
    return None


def claims_of(asked: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The numbered claims of what a judge is asked."""
    return [(one[0], one[1]) for one in asked["answer"] if isinstance(one, list)]


def by_figures(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Right verdicts: a claim holds where each of its figures stands in the passage next to it."""
    found = []
    for number, claim in claims_of(asked):
        if claim.endswith(":"):
            found.append({"n": number, "status": "NOT_CHECKABLE", "quotes": []})
            continue
        passage, text = max(asked["passages"], key=lambda one: _shared(claim, one[1]))
        if not _shared(claim, text):
            found.append({"n": number, "status": "UNSUPPORTED", "kind": "INVENTION", "quotes": []})
            continue
        missing = _figures(claim) - _figures(text)
        verdict = {"n": number, "quotes": [{"in": passage, "text": text}], "reason": ""}
        if missing:
            wrong = min(missing)
            told = {"status": "CONTRADICTED", "kind": "NUMBER", "wrong": wrong}
            found.append({**verdict, **told, "reason": f"The passage does not say {wrong}."})
        else:
            found.append({**verdict, "status": "SUPPORTED"})
    return {"id": asked["id"], "claims": found, "unnumbered": []}


def by_words(verdicts: Mapping[str, Mapping[str, Any]]) -> Verdicts:
    """Recorded verdicts: a claim gets the first one whose words it holds; else it is supported
    by the passage that shares most words with it.
    """

    def said(asked: Mapping[str, Any]) -> dict[str, Any]:
        found = []
        for number, claim in claims_of(asked):
            passage, text = max(asked["passages"], key=lambda one: _shared(claim, one[1]))
            own = next((one for words, one in verdicts.items() if words in claim), None)
            told = own or {"status": "SUPPORTED", "quotes": [{"in": passage, "text": text}]}
            found.append({"n": number, **told})
        return {"id": asked["id"], "claims": found, "unnumbered": []}

    return said


class ScriptedJudge:
    """A judge of the pages of the documentation: verdicts that a model might give."""

    model_name = "gpt-4o-mini"

    def __init__(self, verdicts: Mapping[str, Mapping[str, Any]]) -> None:
        self._said = by_words(verdicts)

    def call(self, call: ModelCall) -> Reply:
        """Answer what a judge is asked."""
        texts = [str(one.content) for one in call.messages]
        return Reply(text=reply_to(texts, self._said), model=self.model_name)

    async def acall(self, call: ModelCall) -> Reply:
        """The asynchronous twin of `call`."""
        return self.call(call)


def changed(wrong: str, quote: str, passage: str = "1", kind: str = "NUMBER") -> dict[str, Any]:
    """The verdict that a claim contradicts what a passage says."""
    quotes = [{"in": passage, "text": quote}]
    return {"status": "CONTRADICTED", "kind": kind, "wrong": wrong, "quotes": quotes}


def reply_to(texts: Iterable[str], verdicts: Verdicts = by_figures) -> str:
    """The reply to a judge's messages.

    Raises:
        AssertionError: they are no judge's.
    """
    asked = material(texts)
    assert asked is not None, "this is no call of a judge"
    return json.dumps(verdicts(asked))


def judging(verdicts: Verdicts = by_figures) -> Callable[[Recorded], str]:
    """The answers of a server that judges."""

    def answer(seen: Recorded) -> str:
        return reply_to([seen.question, *_said(seen)], verdicts)

    return answer


def both(answer: str, verdicts: Verdicts = by_figures) -> Callable[[Recorded], str]:
    """The answers of a server that answers, and judges where it is asked to."""

    def said(seen: Recorded) -> str:
        texts = [seen.question, *_said(seen)]
        return answer if material(texts) is None else reply_to(texts, verdicts)

    return said


def judge_double(**options: Any) -> Any:
    """A running server in the OpenAI shape that judges."""
    return openai_double(**{"answers": judging(), **options})


def named(server: Double, **more: Any) -> dict[str, Any]:
    """A judge by name, at a server."""
    return {"model": NAME, "api_base": server.url, "api_key": "sk-judge", **more}


def asked(server: Double) -> list[dict[str, Any]]:
    """What judges were asked at a server, in order."""
    found = [material([seen.question, *_said(seen)]) for seen in server.requests]
    return [one for one in found if one is not None]


def _said(seen: Recorded) -> list[str]:
    return [str(one.get("content") or "") for one in seen.body.get("messages", ())]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{4,}|plant \d+", text.lower()))


def _shared(claim: str, text: str) -> int:
    return len(_words(claim) & _words(text))


def _figures(text: str) -> set[str]:
    # A citation's number is no figure.
    return set(re.findall(r"\d+", re.sub(r"\[\d+\]", "", text)))
