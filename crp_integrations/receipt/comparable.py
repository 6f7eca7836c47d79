"""Content as it is laid beside that of another receipt: names and ids in the place of numbers.

A number of a leaf or of a candidate means something in one receipt alone; the leaf's name and the
candidate's id mean the same in another. Ids of windows and of decisions, and times, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from crp_integrations.receipt.records import Receipt

Told = dict[str, Any]


class Comparable:
    """One receipt's side of a comparison.

    Attributes:
        candidates: without texts, by their ids.
    """

    def __init__(self, receipt: Receipt) -> None:
        """Take a receipt whose content has its shape."""
        self._content = receipt.content
        self._names = [leaf.name for leaf in receipt.leaves]
        self._ids = [one["id"] for one in self._content["candidates"]]
        self.candidates: dict[str, Told] = {
            one["id"]: _but(one, "leaf", "ingested_at", "decision")
            for one in self._content["candidates"]
        }

    def part(self, name: str) -> Any:
        """A part of the content; None where there is none."""
        value = self._content[name]
        make = _READ.get(name)
        return value if make is None or value is None else make(self, value)

    @property
    def salted(self) -> bool:
        """Whether a secret of the session is in the ETag."""
        return bool((self._content["fit"] or {}).get("salted"))

    @property
    def shown(self) -> list[str]:
        """Ids of what the model was shown, in order."""
        envelope, examined = self._content["envelope"], self._content["examined"]
        if envelope is not None:
            return [self._ids[fact["at"]] for fact in envelope["facts"]]
        return [] if examined is None else [one["id"] for one in examined["passages"] or ()]

    def _named(self, value: Any) -> Any:
        """Names in the place of numbers of leaves, in whatever holds nothing else in numbers."""
        if isinstance(value, bool) or not isinstance(value, (int, list, tuple)):
            return value
        return self._names[value] if isinstance(value, int) else [*map(self._named, value)]

    def _messages(self, messages: Any) -> list[Told]:
        return [{name: self._named(one[name]) for name in one} for one in messages]

    def _request(self, value: Any) -> Told:
        told = {**value, "history": self._messages(value.get("history", ()))}
        for name in ("question", "needs", "system_prompt", "instructions", "tools"):
            told[name] = self._named(value.get(name))
        return told

    def _calls(self, value: Any) -> list[Told]:
        return [{**one, "messages": self._messages(one["messages"])} for one in value]

    def _fit(self, value: Any) -> Told:
        return _but(value, "now", "window_number")

    def _envelope(self, value: Any) -> Told:
        facts = [{**one, "at": self._ids[one["at"]]} for one in value["facts"]]
        dropped = [
            {**one, **{name: self._ids[one[name]] for name in ("at", "kept") if name in one}}
            for one in value["dropped"]
        ]
        return {**value, "facts": facts, "dropped": dropped}

    def _examined(self, value: Any) -> Told:
        told = _but(value, "signals", "judged")
        told["judged"] = self._judged(value.get("judged"))
        for name in ("answer", "question", "needs", "prompt"):
            told[name] = self._named(value.get(name))
        told["prior"] = [
            {**_but(one, "window_id", "number"), "leaf": self._named(one["leaf"])}
            for one in value.get("prior", ())
        ]
        if value.get("passages") is not None:
            told["passages"] = [
                {**one, "pieces": [self._piece(piece) for piece in one["pieces"]]}
                for one in value["passages"]
            ]
        return told

    def _judged(self, value: Any) -> Any:
        if value is None:
            return None
        told = {**value, "instructions": self._named(value.get("instructions"))}
        told["conversation"] = self._messages(value.get("conversation", ()))
        told["calls"] = [
            {**_but(one, "cached", "cost", "milliseconds"), "leaf": self._named(one.get("leaf"))}
            for one in value.get("calls", ())
        ]
        return told

    def _piece(self, piece: Any) -> Any:
        if isinstance(piece, (list, tuple)):
            return [self._names[piece[0]], *piece[1:]]
        return self._named(piece)


def _but(value: Mapping[str, Any], *names: str) -> Told:
    return {name: inner for name, inner in value.items() if name not in names}


_READ: Final[Mapping[str, Callable[[Comparable, Any], Any]]] = {
    "request": Comparable._request,
    "fit": Comparable._fit,
    "envelope": Comparable._envelope,
    "calls": Comparable._calls,
    "examined": Comparable._examined,
}
