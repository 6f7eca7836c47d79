"""What a request's headers say of its body: JSON in UTF-8, not compressed, framed in one way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from crp_integrations.gateway.answers import JSON, Answered, refusal

CLOSE: Final = {"Connection": "close"}
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_SUFFIX: Final = "+json"
_PLAIN: Final = frozenset({"", "identity"})


def framed_twice(headers: Iterable[tuple[bytes, bytes]]) -> Answered | None:
    """The refusal of a body with two lengths, whose end two servers may see in different places.

    RFC 9112 §6.1 lets a server refuse it.
    """
    names = {name.lower() for name, _ in headers}
    if not {b"transfer-encoding", b"content-length"} <= names:
        return None
    return refusal(
        400,
        "two_lengths",
        "the body has Content-Length and Transfer-Encoding; send one of them",
        CLOSE,
    )


def unreadable(headers: Iterable[tuple[bytes, bytes]]) -> Answered | None:
    """The refusal of a body that is no JSON by its headers; one that says nothing is read."""
    for name, value in headers:
        said = value.decode("latin-1").strip().lower()
        if name.lower() == b"content-encoding" and said not in _PLAIN:
            return _unsupported(f"the body is encoded as {said!r:.40}; send it as it is")
        if name.lower() == b"content-type" and not _is_json(said):
            return _unsupported(f"the body is {said!r:.80}; send {JSON} in UTF-8")
    return None


def _is_json(said: str) -> bool:
    kind, *parameters = (part.strip() for part in said.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in _CHARSETS:
            return False
    return kind == JSON or (kind.startswith("application/") and kind.endswith(_SUFFIX))


def _unsupported(message: str) -> Answered:
    return refusal(415, "unsupported_media_type", message, CLOSE)
