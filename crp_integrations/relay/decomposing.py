"""The information needs of one request: given, by rules, or asked of the model.

The model's reply is data for Phase 1 and is never shown. It is taken only when it is exactly a
JSON list of texts; whatever else it is, the rules decide, and the envelope says which of the two.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence

from crp_integrations.envelope.decomposition import (
    DECOMPOSE,
    DecomposeSettings,
    complete_needs,
    decompose,
)
from crp_integrations.envelope.records import Envelope
from crp_integrations.language.words import content_stems
from crp_integrations.messages import Message, ModelCall, Reply
from crp_integrations.relay.records import Request
from crp_integrations.relay.steps import Dispatch
from crp_integrations.vocabulary import Decomposition, Purpose

DECOMPOSE_MODEL = "decompose-model@1"
INSTRUCTION = (
    "You prepare a search. Split the user's question into the separate pieces of information that "
    "must be looked up to answer it. When one piece must be known before another, put it first. "
    "Write each piece so that it can be understood alone, in the question's own words and "
    "language. Do not answer the question. A question that asks for one thing stays whole.\n"
    "Reply with a JSON list of at most {most} strings and nothing else."
)


class Needs:
    """What one request looks for; settled once, before anything is read.

    Spec: CRP-SPEC-003 §5.2

    Attributes:
        waiting: the model was asked and has not replied.
    """

    def __init__(self, request: Request, settings: DecomposeSettings) -> None:
        self._request = request
        self._settings = settings
        self._found: tuple[str, ...] = tuple(request.sub_queries)
        self._algorithm = ""
        self._searched: frozenset[str] = frozenset()
        self.waiting = False

    def asking(self) -> Dispatch | None:
        """The call that decomposes the question, None when no model is to be asked."""
        request = self._request
        if self._found or self.waiting or request.decompose is not Decomposition.MODEL:
            return None
        self.waiting = True
        instruction = INSTRUCTION.format(most=self._settings.most)
        call = ModelCall(
            model=request.model,
            messages=(
                Message(role="system", content=instruction),
                Message(role="user", content=request.query),
            ),
            purpose=Purpose.DECOMPOSE,
            temperature=0.0,
            max_tokens=self._settings.reply_tokens,
            seed=request.seed,
        )
        return Dispatch(call)

    def read(self, reply: Reply) -> None:
        """Take the needs from the model's reply, if it is nothing but a list of them."""
        self.waiting = False
        told = parsed(reply.text, self._settings)
        if told:
            self._found = complete_needs(self._request.query, told, self._settings)
            self._algorithm = DECOMPOSE_MODEL

    @property
    def sub_queries(self) -> tuple[str, ...]:
        """The needs; without a reply those of the rules, and the question for `none`."""
        if not self._found:
            self.waiting = False
            query = self._request.query
            if self._request.decompose is Decomposition.NONE or not self._settings.rules:
                self._found = (query,)
            else:
                self._found = decompose(query, self._settings)
                self._algorithm = DECOMPOSE
        return self._found

    def add(self, queries: Sequence[str]) -> None:
        """What an agent searches for; the question's own needs come first."""
        own = self.sub_queries
        self._searched |= frozenset(queries).difference(own)
        self._found = tuple(dict.fromkeys((*own, *queries)))

    def own(self, sub_queries: Sequence[str]) -> tuple[str, ...]:
        """Those that an answer is to cover, without what was only searched for on the way."""
        return tuple(need for need in sub_queries if need not in self._searched)

    def named(self, envelope: Envelope) -> Envelope:
        """An envelope that names what decomposed its question."""
        if not self._algorithm or self._algorithm in envelope.algorithms:
            return envelope
        # Nothing is validated again: a name is all that is added.
        return envelope.model_copy(
            update={"algorithms": (self._algorithm, *envelope.algorithms)},
        )


def parsed(text: str, settings: DecomposeSettings) -> tuple[str, ...] | None:
    """The needs in a model's reply.

    Spec: CRP-SPEC-003 §5.2

    Returns:
        One to `settings.most` texts on one line each; None for a reply that is anything but a
        JSON list of so many texts, each with a content word and at most `settings.longest`
        characters.
    """
    if len(text) > settings.most * (settings.longest + 8):
        return None
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, list) or not 0 < len(told) <= settings.most:
        return None
    needs = []
    for need in told:
        if not isinstance(need, str) or len(need) > settings.longest or not _readable(need):
            return None
        needs.append(" ".join(need.split()))
    return tuple(needs)


def _readable(text: str) -> bool:
    """Whether a text can be written as UTF-8, has no control sign and says something."""
    kinds = {unicodedata.category(sign) for sign in text if not sign.isspace()}
    return kinds.isdisjoint(("Cc", "Cs")) and bool(content_stems(text))
