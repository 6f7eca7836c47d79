"""Rego by an OPA server over HTTP: `POST /v1/data/…` with the input, the rule's value back.

The server holds the policy and may be given another one at any time, so nothing is remembered
here. A server that cannot be reached, or says something else, is an engine that failed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import httpx

from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.guard.ports import Bundle

LIBRARY: Final = "opa"
# Bytes: what a decision takes is some hundred.
LONGEST_ANSWER: Final = 1_000_000


class OpaEngine:
    """Asks an OPA server; safe between threads.

    Args:
        url: address of the server, without a path; what stands before an `@` is sent as name and
            password and told nowhere.
        timeout_s: seconds that it may take to begin an answer, and to end it; then it has failed.
        transport: carries the requests; None for the network.

    Raises:
        ConfigError: the address is none of HTTP.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 2.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._told = _told(self._url)
        self._timeout_s = timeout_s
        # No proxy of the environment sees who asks for what.
        self._client = httpx.Client(timeout=timeout_s, transport=transport, trust_env=False)

    @property
    def identity(self) -> str:
        """`opa` and the server's address."""
        return f"{LIBRARY} {self._told}"

    def decide(self, bundle: Bundle, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """The value of the entrypoint for an input, with the server's `decision_id` if it has
        one.
        """
        place = f"{self._url}/v1/data/{bundle.entrypoint}"
        try:
            answer = json.loads(self._answer(place, {"input": dict(question)}))
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise self._failed(f"answered with status {status}") from error
        except httpx.HTTPError as error:
            raise self._failed(f"cannot be reached ({type(error).__name__})") from error
        except (ValueError, RecursionError) as error:
            raise self._failed("answered with something else than JSON") from error
        result = answer.get("result") if isinstance(answer, dict) else None
        if not isinstance(result, dict):
            raise self._failed(f"has no object at {bundle.entrypoint}; is the policy loaded?")
        number = answer.get("decision_id")
        return {**result, "decision_id": number} if isinstance(number, str) else result

    def _answer(self, place: str, asked: Mapping[str, Any]) -> bytes:
        """The body of an answer; httpx waits so long for each piece, this one for the whole."""
        with self._client.stream("POST", place, json=asked) as answer:
            answer.raise_for_status()
            ends = time.monotonic() + self._timeout_s
            body = bytearray()
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > LONGEST_ANSWER:
                    raise self._failed(f"answered with more than {LONGEST_ANSWER} bytes")
                if time.monotonic() > ends:
                    raise self._failed(f"did not end its answer in {self._timeout_s:g} s")
        return bytes(body)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _failed(self, why: str) -> EngineError:
        return EngineError(f"the OPA server at {self._told} {why}", engine=LIBRARY)


def _told(url: str) -> str:
    """The address as errors and reports tell it: without name and password."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        # It is not repeated: what is wrong in it may be the password.
        raise ConfigError(
            "guard.opa_url is no address of a server, wanted one such as http://127.0.0.1:8181"
        )
    return str(parsed.copy_with(userinfo=b"")).rstrip("/")
