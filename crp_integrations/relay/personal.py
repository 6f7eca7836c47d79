"""Which facts hold personal data; each text is looked at once.

Spec: CRP-SPEC-003 §16.1 (decision E22)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from crp_integrations.dpe.pii import find_personal_data
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.envelope.records import PackedFact
from crp_integrations.seals import sha256_each


@dataclass(frozen=True, slots=True)
class PersonalFacts:
    """How many facts of an envelope hold personal data, and how many nobody has looked at.

    Attributes:
        hashes: `sha256:…` of what is shown of the others, by the fact's id.
    """

    held: int
    unread: int
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    def flags(self) -> list[str]:
        """The compliance warning of an envelope that is not under `no-store`."""
        said = (("personal-facts-without-no-store", self.held), ("facts-not-searched", self.unread))
        return [f"{name}={count}" for name, count in said if count]


class Searched:
    """Whether texts hold personal data, by their hash: a model of names is slow beside the rest.

    Safe under threads.
    """

    def __init__(self, most_texts: int = 50_000) -> None:
        self._most = most_texts
        self._known: OrderedDict[str, bool] = OrderedDict()
        self._lock = threading.Lock()

    def of(
        self, facts: Sequence[PackedFact], settings: PersonalSettings, most_characters: int
    ) -> PersonalFacts:
        """Look at an envelope's facts.

        Args:
            most_characters: of all texts together; those behind it are not looked at, whatever
                is known of them, so that equal envelopes are told alike.
        """
        texts: list[str] = []
        ids: list[str] = []
        unread = 0
        for fact in facts:
            most_characters -= len(fact.content)
            if most_characters < 0:
                unread += 1
            else:
                texts.append(fact.content)
                ids.append(fact.fact_id)
        names = sha256_each([text.encode("utf-8", "surrogatepass") for text in texts])
        with self._lock:
            known = [self._known.get(name) for name in names]
            # Which were used last says nothing while there is room for as many again.
            if 2 * len(self._known) > self._most:
                for name, holds in zip(names, known, strict=True):
                    if holds is not None:
                        self._known.move_to_end(name)
        held = known.count(True)
        if None in known:
            held += sum(
                self._holds(name, text, settings)
                for name, text, holds in zip(names, texts, known, strict=True)
                if holds is None
            )
        return PersonalFacts(held, unread, dict(zip(ids, names, strict=True)))

    def _holds(self, name: str, text: str, settings: PersonalSettings) -> bool:
        """Look at a text that was not known."""
        holds = bool(list(find_personal_data(text, settings=settings)))
        with self._lock:
            self._known[name] = holds
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return holds
