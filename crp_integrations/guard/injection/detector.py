"""Looking at texts once: reports by the hash of the text, as long as they are remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from crp_integrations.guard.injection.detect import detect_many
from crp_integrations.guard.injection.ports import InjectionModel
from crp_integrations.guard.injection.records import InjectionReport, InjectionSettings
from crp_integrations.seals import sha256


class Detector:
    """The rules, and a model where one is given, with what they said before. Safe under threads.

    A report holds no word of its text and is kept by the text's hash, so nothing of a fact stays.
    """

    def __init__(
        self,
        settings: InjectionSettings | None = None,
        model: InjectionModel | None = None,
        *,
        most_texts: int = 50_000,
    ) -> None:
        """Take what decides.

        Args:
            model: asked beside the rules, in one call for all texts that are new.
            most_texts: reports kept; the one used longest ago goes.
        """
        self._settings = settings or InjectionSettings()
        self._model = model
        self._most = most_texts
        self._known: OrderedDict[str, InjectionReport] = OrderedDict()
        self._lock = threading.Lock()

    def under(self, settings: InjectionSettings) -> Detector:
        """The same rules and model with these numbers; this one, where they are its own."""
        if settings == self._settings:
            return self
        return Detector(settings, self._model, most_texts=self._most)

    @property
    def model(self) -> str:
        """Identity of the model that is asked too; empty for none."""
        return "" if self._model is None else self._model.identity

    def reports(self, texts: Sequence[str]) -> list[InjectionReport]:
        """The report on each text, in their order; each text is looked at once.

        Raises:
            EngineError: the model failed; nothing was looked at then.
        """
        names = [sha256(text.encode("utf-8", "surrogatepass")) for text in texts]
        with self._lock:
            found = {name: self._known[name] for name in names if name in self._known}
            for name in found:
                self._known.move_to_end(name)
        new = {name: text for name, text in zip(names, texts, strict=True) if name not in found}
        if new:
            made = detect_many(list(new.values()), self._settings, self._model)
            found |= zip(new, made, strict=True)
            with self._lock:
                self._known.update((name, found[name]) for name in new)
                while len(self._known) > self._most:
                    self._known.popitem(last=False)
        return [found[name] for name in names]
