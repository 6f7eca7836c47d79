"""One request on its way through the gateway."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import CRPError, RequestError
from crp_integrations.gateway.answers import INTERNAL
from crp_integrations.gateway.keys import Key
from crp_integrations.gateway.metrics import Metrics
from crp_integrations.gateway.settings import GatewaySettings
from crp_integrations.gateway.upstream import Upstream
from crp_integrations.guard.decisions import Subject
from crp_integrations.headers import names
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.steps import Halt, NotModified, Outcome, Refusal, Release
from crp_integrations.seals import sha256

_LOG: Final = logging.getLogger("crp_integrations.gateway")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
# How the end of a window is counted and logged.
ENDS: Final = {Release: "released", Halt: "halted", NotModified: "unmodified", Refusal: "refused"}


@dataclass(slots=True)
class Noted:
    """What the access log says of a request besides its route and status: ids alone.

    Spec: CRP-SPEC-003 §16.1
    """

    session_id: str = ""
    window_id: str = ""
    fact_ids: list[str] = field(default_factory=list)
    outcome: str = ""

    def facts(self, ids: Iterable[str]) -> None:
        """Note facts that were shown or changed.

        An id that a caller chose may say anything, so of it the log has a hash.
        """
        self.fact_ids += [id_ if _UUID.fullmatch(id_) else sha256(id_) for id_ in ids]

    def envelope(self, envelope: Envelope | None) -> None:
        """Note the facts of an envelope."""
        if envelope is not None:
            self.facts(fact.fact_id for fact in envelope.facts)


def log_failure(request_id: str, error: CRPError) -> None:
    """Say in the log what a caller is not told: why his request failed, from status 500 on."""
    if error.status_hint >= INTERNAL:
        _LOG.warning("request %s: %s: %s", request_id, type(error).__name__, error)


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was let in.

    Attributes:
        headers: as they came, decoded one character a byte.
        query: of the address, each name once.
        path: parameters of the path.
        body: whole; empty for a request without one.
        relay: of the key's tenant; every read and write goes through it.
        holds: whether a key gives a subject all of its roles by now.
    """

    request_id: str
    created: int
    headers: Sequence[tuple[str, str]]
    query: Mapping[str, str]
    path: Mapping[str, str]
    body: bytes
    key: Key
    relay: Relay
    upstream: Upstream
    models: tuple[str, ...]
    settings: GatewaySettings
    holds: Callable[[Subject], bool]
    metrics: Metrics
    noted: Noted

    def note(self, outcome: Outcome) -> None:
        """Note how a window ended."""
        self.noted.outcome = ENDS[type(outcome)]
        self.metrics.outcome(self.noted.outcome)
        match outcome:
            case Release(answer=answer) | Halt(answer=answer):
                self.noted.session_id, self.noted.window_id = answer.session_id, answer.window_id
                self.noted.envelope(answer.envelope)
                self.metrics.tokens("prompt", answer.reply.usage.prompt_tokens)
                self.metrics.tokens("completion", answer.reply.usage.completion_tokens)
            case NotModified(envelope=envelope):
                self.noted.envelope(envelope)
            case Refusal(error=error, headers=headers, envelope=envelope):
                self.noted.session_id = headers.get(names.SESSION_ID, self.noted.session_id)
                self.noted.envelope(envelope)
                log_failure(self.request_id, error)

    def whole(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        """A whole number of the address.

        Raises:
            RequestError: it is none, or out of its range.
        """
        text = self.query.get(name)
        if text is None:
            return default
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else -1
        if not least <= number <= most:
            wanted = f"a whole number from {least} to {most}"
            raise RequestError(f"{name} is {text!r:.40}, wanted {wanted}")
        return number

    def only(self, *names: str) -> None:
        """Check that the address has no other parameters.

        Raises:
            RequestError: it has one.
        """
        for name in self.query:
            if name not in names:
                wanted = ", ".join(names) or "none"
                raise RequestError(f"parameter {name!r:.40} is not known here; wanted {wanted}")
