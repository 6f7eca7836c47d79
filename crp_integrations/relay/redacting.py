"""Personal data taken out of a text before a subject sees it, where the guard's policy says so.

Spec: CRP-SPEC-003 §17.1 (decision E22)
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from crp_integrations.dpe.pii import KINDS, find_personal_data
from crp_integrations.dpe.pii.spans import PersonalSpan, apart
from crp_integrations.dpe.ports import Recogniser
from crp_integrations.dpe.settings import PersonalSettings
from crp_integrations.errors import EngineError
from crp_integrations.language.memo import forgotten_with
from crp_integrations.seals import sha256_hex

EVERY: Final = "*"
_ENGINE: Final = "crp recognisers"
MOST_KEPT: Final = 10_000


class Redacting:
    """Replaces each place of personal data by its kind, as in `[redacted email]` (`redact@1`).

    Safe between threads. `language.memo.forget` lets go of the texts that are kept, and of what is
    being made meanwhile.

    Args:
        settings: how sure a recogniser must be, and which kinds are left aside.
        recognisers: look beside the package's own.
        most_kept: redacted texts kept in memory, by the hash of what they were made of.
    """

    def __init__(
        self,
        settings: PersonalSettings,
        recognisers: Sequence[Recogniser] = (),
        *,
        most_kept: int = MOST_KEPT,
    ) -> None:
        self._settings = settings
        self._recognisers = tuple(recognisers)
        self._kinds = {EVERY, *KINDS, *(kind for one in self._recognisers for kind in one.kinds)}
        self._most = most_kept
        self._known: OrderedDict[tuple[str, tuple[str, ...]], str] = OrderedDict()
        self._lock = threading.Lock()
        self._erasures = 0
        _EVERY.add(self)

    @property
    def kept(self) -> int:
        """How many texts are kept."""
        return len(self._known)

    def forget(self) -> None:
        """Let go of every text that is kept."""
        with self._lock:
            self._erasures += 1
            self._known.clear()

    def redacted(self, text: str, kinds: tuple[str, ...]) -> str:
        """The text without the personal data of these kinds.

        Args:
            kinds: of `crp_integrations.dpe.pii.KINDS` or of another recogniser's, also one that
                reports leave aside; `*` for all that is looked for.

        Raises:
            EngineError: a recogniser failed, or nobody looks for a kind.
        """
        key = sha256_hex(text.encode("utf-8", "surrogatepass")), kinds
        with self._lock:
            begun = self._erasures
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        made = self._without(text, kinds)
        with self._lock:
            if begun == self._erasures:
                self._known[key] = made
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return made

    def _without(self, text: str, kinds: tuple[str, ...]) -> str:
        unknown = sorted({*kinds} - self._kinds)
        if unknown:
            # A text with a kind that is misspelt would be shown as if nothing had been in it.
            raise EngineError(
                f"nobody looks for the kind of personal data {', '.join(map(repr, unknown)):.120}, "
                f"wanted `{EVERY}` or kinds of recognisers",
                engine=_ENGINE,
            )
        # What a policy names is taken out; `aside` says what reports need not tell.
        aside = tuple(kind for kind in self._settings.aside if kind not in kinds)
        settings = self._settings.model_copy(update={"aside": aside})
        found: list[PersonalSpan] = list(find_personal_data(text, settings=settings))
        for recogniser in self._recognisers:
            found += [
                one
                for one in recogniser.find(text)
                if one.score >= settings.least_score and one.kind not in aside
            ]
        wanted = [one for one in found if EVERY in kinds or one.kind in kinds]
        parts, end = [], 0
        for one in apart(wanted):
            parts += [text[end : one.start], f"[redacted {one.kind}]"]
            end = one.end
        return "".join([*parts, text[end:]])


_EVERY: weakref.WeakSet[Redacting] = weakref.WeakSet()


def _forget_all() -> None:
    for redacting in list(_EVERY):
        redacting.forget()


forgotten_with(_forget_all)
