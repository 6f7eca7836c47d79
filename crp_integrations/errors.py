"""Every exception of the package; an outcome that a specification names is a value instead.

A message is one sentence with the actual and the expected value. It never contains a
fact's text, only ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final


class CRPError(Exception):
    """Root of the package's exceptions.

    Attributes:
        status_hint: the HTTP status with which a gateway responds.
        directive: the demand that is not met: a directive such as `halt-on HIGH`, `accept-risk
            LOW`, or a setting or law such as `judge_failure halt`; empty for none.
        value: the value found, such as `CRITICAL` or `2 found`.
        status_code: `status_hint` under the name that clients of OpenAI read, unless the error is
            also one of LiteLLM's classes, which have their own.
    """

    status_hint: int = 500
    # Not a property, which would hide the value of LiteLLM's class.
    status_code = cached_property(lambda self: self.status_hint)

    def __init__(self, *args: object, directive: str = "", value: str = "") -> None:
        super().__init__(*args)
        self.directive = directive
        self.value = value


class RequestError(CRPError):
    """A request, policy, header or argument is malformed.

    Attributes:
        param: the malformed field of the request's body; None when it is not known.
    """

    status_hint = 400
    param: str | None = None


class HeaderSyntaxError(RequestError):
    """A CRP header does not follow its grammar."""


class PolicySyntaxError(RequestError):
    """A safety policy does not follow its grammar.

    Attributes:
        column: 1-based column in the policy's text.
    """

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(message)
        self.column = column


class TokenRefused(RequestError):
    """A session token is not genuine, has expired, or is for something else."""

    status_hint = 401


class UnknownContinuation(RequestError):
    """The session has no window that can be continued under this id."""

    status_hint = 404


class StaleTip(RequestError):
    """The session has a newer window; the token or id presented belongs to an earlier one."""

    status_hint = 409


class FactRejected(CRPError):
    """A fact breaks a rule of the fabric and was not stored."""

    status_hint = 422


class IllegalTransition(CRPError):
    """A fact's status cannot change in the requested way."""

    status_hint = 409


class NoRelevantFacts(CRPError):
    """The fabric has nothing relevant, and the caller accepts only relevant facts."""

    status_hint = 424


class QualityUnreachable(CRPError):
    """No envelope of an acceptable tier can be made.

    Attributes:
        tier: the best tier that can be reached, empty when it is not known.
        wanted: the tiers that the caller accepts.
    """

    status_hint = 503

    def __init__(
        self, message: str, *, tier: str = "", wanted: tuple[str, ...] = (), **demand: str
    ) -> None:
        super().__init__(message, **demand)
        self.tier = tier
        self.wanted = wanted


class AccessDenied(CRPError):
    """The guard refused a subject."""

    status_hint = 403


class PolicyRelaxed(AccessDenied):
    """A policy is less strict than the policy in force.

    Attributes:
        directive, parent, child: the relaxed directive, its value in force and its new value.
    """

    def __init__(self, message: str, *, directive: str, parent: str, child: str) -> None:
        super().__init__(message, directive=directive, value=child)
        self.parent = parent
        self.child = child


class EnvelopeUnchanged(CRPError):
    """The envelope that the caller named is still current, so no model was called.

    Attributes:
        etag: ETag of that envelope.
        headers: CRP response headers of its window, with `CRP-Context-Cache-Status: HIT`.
    """

    status_hint = 304

    def __init__(self, message: str, *, etag: str, headers: dict[str, str]) -> None:
        super().__init__(message)
        self.etag = etag
        self.headers = headers


class LimitReached(CRPError):
    """A configured limit was reached."""

    status_hint = 429


class SafetyHalt(CRPError):
    """An answer was withheld; carries the report and the trail's id.

    Attributes:
        reason: one of the halt reasons of a 451 body; empty when it is not known.
        session_id: id of the session in which it happened; empty when it is not known.
    """

    status_hint = 451

    def __init__(
        self,
        message: str,
        *,
        report: object = None,
        trail: str = "",
        reason: str = "",
        session_id: str = "",
        directive: str = "",
        value: str = "",
    ) -> None:
        words = f"{message} ({directive}, found {value})" if directive else message
        super().__init__(words, directive=directive, value=value)
        self.report = report
        self.trail = trail
        self.reason = reason
        self.session_id = session_id


class ChainBroken(CRPError):
    """A chained log does not verify.

    Attributes:
        index: zero-based index of the first bad event.
    """

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class ReceiptBroken(CRPError):
    """A receipt is malformed or does not verify.

    Attributes:
        place: the part of the file that is wrong, such as `texts[3]`.
        reason: what is wrong with it; never a text from the receipt.
    """

    status_hint = 422

    def __init__(self, place: str, reason: str) -> None:
        # A place may be a name that the signer chose; it must not carry terminal escape codes.
        place, reason = printable(place), printable(reason)
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


def printable(text: str) -> str:
    """The text with signs that cannot be printed, such as escape codes, written out."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class CompactionRefused(CRPError):
    """A compacted context does not list what it left out, or states something no source states.

    Attributes:
        faults: each fault as one sentence with ids; never the text of an item.
    """

    status_hint = 422

    def __init__(self, faults: tuple[str, ...]) -> None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"the compacted context is refused: {faults[0]}{more}")
        self.faults = faults


# Provider statuses that are passed on, since the caller can act on them.
_ACTIONABLE_STATUSES: Final = frozenset({400, 401, 403, 404, 409, 422, 429})


class ModelError(CRPError):
    """A model call failed.

    Attributes:
        status_hint: the provider's own status for 400, 401, 403, 404, 409, 422 and 429, else 502.
        tried: models that were tried, in order; empty when that is not known.
        refusal: the provider's error as `message`, `type`, `param` and `code`; None where it sent
            no such error. Its words end the text of this error. They may quote the prompt, so this
            package returns them to the caller and never logs them.
        retry_after: the provider's `Retry-After`; empty without one.
    """

    status_hint = 502
    tried: tuple[str, ...] = ()
    refusal: Mapping[str, Any] | None = None
    retry_after: str = ""
    _provider_status: int | None = None

    def __str__(self) -> str:
        # Not `super()`, which is LiteLLM's class where an error is an instance of that too.
        sentence = Exception.__str__(self)
        words = " ".join(str((self.refusal or {}).get("message", "")).split())
        return f"{sentence}; its provider says: {words[:_MAX_QUOTED]}" if words else sentence

    @property
    def provider_status(self) -> int | None:
        """HTTP status from the model that was tried last, None without one."""
        return self._provider_status

    @provider_status.setter
    def provider_status(self, status: int | None) -> None:
        self._provider_status = status
        self.status_hint = status if status in _ACTIONABLE_STATUSES else ModelError.status_hint


class ModelNotFound(ModelError):
    """No provider or model of that name is known."""


class ModelRateLimited(ModelError):
    """The provider refused for rate or quota."""


class ModelContextExceeded(ModelError):
    """The request is larger than the model's context limit."""


class ModelAuthError(ModelError):
    """The provider refused the credentials, or none are set."""


class ModelTimeout(ModelError):
    """The provider did not answer in time."""


# The error that each HTTP status of a provider means.
_ERROR_BY_STATUS: Final[Mapping[int, type[ModelError]]] = MappingProxyType(
    {
        401: ModelAuthError,
        403: ModelAuthError,
        404: ModelNotFound,
        408: ModelTimeout,
        413: ModelContextExceeded,
        429: ModelRateLimited,
        504: ModelTimeout,
    }
)
# Words by which a too long prompt is recognised when the status is 400 or missing.
_TOO_LONG: Final = ("context_length_exceeded", "maximum context length", "prompt is too long")


def provider_error(status: object, words: str = "") -> type[ModelError]:
    """The error class that matches a provider's response.

    Args:
        status: HTTP status; anything but an integer is treated as unknown.
        words: the provider's message, which is searched and not repeated.

    >>> provider_error(429).__name__, provider_error(400, "prompt is too long").__name__
    ('ModelRateLimited', 'ModelContextExceeded')
    """
    if status in (None, 400) and any(mark in words.lower() for mark in _TOO_LONG):
        return ModelContextExceeded
    return _ERROR_BY_STATUS.get(status, ModelError) if isinstance(status, int) else ModelError


# Maximum characters of a refusal's message, which may repeat a whole prompt; and of its quotation
# in the text of an error.
_MAX_MESSAGE_CHARS: Final = 2_000
_MAX_QUOTED: Final = 300
# An API key, whole or masked with asterisks, as an authentication error quotes it.
_KEY: Final = re.compile(
    r"\b(?:sk|pk|gsk|xai|hf|r8)[-_][\w*-]{4,}|\bAIza[\w*-]{6,}|[\w-]*\*{3,}[\w*-]*"
)


def provider_refusal(body: object) -> dict[str, Any] | None:
    """A provider's refusal as `message`, `type`, `param` and `code`; None for another body.

    Args:
        body: the body, as text or parsed JSON, with or without an `error` object around these
            fields. API keys in its message are masked.
    """
    if isinstance(body, str):
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    refusal = (body.get("error") or body) if isinstance(body, Mapping) else None
    refusal = refusal if isinstance(refusal, Mapping) else {"message": refusal}
    message = refusal.get("message") or refusal.get("detail")
    if not message:
        return None
    text = message if isinstance(message, str) else json.dumps(message)
    # JSON may contain a lone surrogate, which cannot be encoded.
    text = _KEY.sub("[key]", text).encode(errors="replace").decode()
    words = {name: refusal.get(name) for name in ("type", "param", "code")}
    short = {name: value if isinstance(value, int | str) else None for name, value in words.items()}
    return {"message": text[:_MAX_MESSAGE_CHARS], **short}


class StoreError(CRPError):
    """The store could not do what was requested; nothing was changed."""


class StoreBusy(StoreError):
    """Another process holds the store's write lock."""

    status_hint = 503


class StoreDamaged(StoreError):
    """The store's files are damaged or incomplete."""


class StoreNewer(StoreError):
    """The store was written by a newer version of the package."""


class StepStopped(CRPError):
    """A guardrail of one of the four steps stopped a run before its model was called.

    Attributes:
        step: `write`, `select`, `compress` or `isolate`.
    """

    status_hint = 422

    def __init__(self, step: str, why: str) -> None:
        super().__init__(f"the run is stopped at step {step}: {why}")
        self.step = step


class IngestError(CRPError):
    """A path or document could not be ingested; the store is unchanged."""

    status_hint = 422


class ConfigError(CRPError):
    """A setting, file or environment variable has no usable value."""


class EngineError(CRPError):
    """The library that an engine uses failed; the library's error is the `__cause__`.

    Attributes:
        engine: name of the engine or library.
        version: its version, empty when unknown.
        provider_status: HTTP status of the service that the library calls, None without one.
        retry_after: the service's `Retry-After`; empty without one.
    """

    provider_status: int | None = None
    retry_after: str = ""

    def __init__(self, message: str, *, engine: str = "", version: str = "") -> None:
        super().__init__(message)
        self.engine = engine
        self.version = version

    @classmethod
    def of(cls, what: str, error: Exception, engine: str) -> EngineError:
        """Wrap a library's error; its message may quote a text and is not repeated."""
        response = getattr(error, "response", None)
        status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
        words = f"{what} failed with {type(error).__name__}"
        if not isinstance(status, int):
            return cls(words, engine=engine)
        made = cls(f"{words} (status {status})", engine=engine)
        made.provider_status = status
        # The caller can act on a rate limit, but not on the operator's API key.
        made.status_hint = status if status == LimitReached.status_hint else 502
        made.retry_after = (getattr(response, "headers", None) or {}).get("retry-after", "")
        return made


class MissingExtra(CRPError, ImportError):
    """An optional dependency is not installed; the message contains the pip command."""

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the extra {extra!r}: pip install 'crp-integrations[{extra}]'"
        )
        self.extra = extra
