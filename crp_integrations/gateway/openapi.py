"""The gateway's OpenAPI 3.1 document, with schemas generated from the records."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from crp_integrations import __version__
from crp_integrations.gateway.endpoint import Operation
from crp_integrations.gateway.records import Refused
from crp_integrations.gateway.responses import JSON
from crp_integrations.headers import codec, grammar

REF: Final = "#/components/schemas/{model}"
BEARER: Final = "key"
# Statuses of every operation with a key, of those without, and of questions.
WITH_KEY: Final = (400, 401, 403, 404, 408, 413, 429, 431, 500, 503)
OPEN: Final = (400, 405, 408, 413, 431, 500)
ASKING: Final = (409, 422, 424, 451, 502)
STATUSES: Final = MappingProxyType(
    {
        304: "The caller's envelope and answer are still valid; repeats that window's headers.",
        400: "The request, a header or a policy is malformed.",
        401: "No valid key, or no genuine session token.",
        403: "The key, the guard, a depth or a stricter policy forbids it.",
        404: "Not found.",
        405: "The path has no such method.",
        408: "The body arrived too slowly.",
        409: "The session has continued since, or the current state forbids the request.",
        413: "The body is too large.",
        415: "The body is not JSON according to its headers, or is compressed.",
        422: "A fact breaks a rule of the fabric.",
        424: "The fabric contains nothing relevant, and only-if-ckf was requested.",
        429: "Too many requests at once or per minute; see Retry-After.",
        431: "The headers are too large.",
        451: "The answer was examined and is withheld.",
        500: "The gateway failed.",
        502: "The upstream failed; its 400, 401, 403, 404, 409, 422 and 429 are passed on as such.",
        503: "No envelope of an accepted quality is possible, or the store is busy.",
    }
)


def document(paths: Mapping[str, Mapping[str, Operation]]) -> dict[str, Any]:
    """The OpenAPI document of a table of paths."""
    docs = [doc for methods in paths.values() for doc in methods.values()]
    kinds: list[tuple[type[BaseModel], JsonSchemaMode]] = [(Refused, "serialization")]
    kinds += [(doc.takes, "validation") for doc in docs if doc.takes]
    kinds += [(doc.gives, "serialization") for doc in docs if doc.gives]
    refs, schemas = models_json_schema(list(dict.fromkeys(kinds)), ref_template=REF)

    def schema(kind: type[BaseModel], mode: JsonSchemaMode) -> dict[str, Any]:
        return refs[kind, mode]

    refused = {JSON: {"schema": schema(Refused, "serialization")}}

    def described(path: str, operation: Operation) -> dict[str, Any]:
        entry: dict[str, Any] = {"operationId": operation.name, "summary": operation.summary}
        named = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters: list[dict[str, Any]] = [
            {"name": name, "in": "path", "required": True, "schema": _TEXT} for name in named
        ]
        parameters += [
            {"name": name, "in": "query", "required": False, "schema": dict(kind)}
            for name, kind in operation.query.items()
        ]
        if operation.asks:
            parameters += [{"$ref": f"#/components/parameters/{name}"} for name in _header_names()]
        if parameters:
            entry["parameters"] = parameters
        if operation.takes:
            content = {JSON: {"schema": schema(operation.takes, "validation")}}
            entry["requestBody"] = {"required": True, "content": content}
        content = (
            {JSON: {"schema": schema(operation.gives, "serialization")}} if operation.gives else {}
        )
        for media in operation.media:
            kind = {"type": "object" if media == JSON else "string"}
            content[media.partition(";")[0]] = {"schema": kind}
        responses: dict[str, Any] = {"200": {"description": "Done.", "content": content}}
        common = (*WITH_KEY, 405) if operation.scope else OPEN
        taken = (415,) if operation.takes else ()
        for status in sorted({*common, *taken, *operation.statuses}):
            responses[str(status)] = {"description": STATUSES[status]}
            if status != 304:
                responses[str(status)]["content"] = refused
        entry["responses"] = responses
        entry["security"] = [{BEARER: []}] if operation.scope else []
        return entry

    return {
        "openapi": "3.1.0",
        "info": {
            "title": "CRP gateway",
            "version": __version__,
            "summary": "OpenAI chat completions with context envelopes and checked answers.",
        },
        "paths": {
            path: {method.lower(): described(path, doc) for method, doc in methods.items()}
            for path, methods in paths.items()
        },
        "components": {
            "schemas": schemas["$defs"],
            "parameters": {
                name: {
                    "name": name,
                    "in": "header",
                    "required": False,
                    "schema": _header_schema(name),
                }
                for name in _header_names()
            },
            "securitySchemes": {BEARER: {"type": "http", "scheme": "bearer"}},
        },
    }


_TEXT: Final = {"type": "string"}


def _header_names() -> list[str]:
    return sorted(form.name for form in codec.REQUEST.values())


def _header_schema(name: str) -> dict[str, str]:
    """A header's grammar as a JSON schema."""
    pattern = grammar.GRAMMAR[name].pattern.replace(r"\-", "-")
    return {"type": "string", "pattern": f"^(?:{pattern})$"}
