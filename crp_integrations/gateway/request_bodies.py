"""Checks an OpenAI request with CRP headers and converts it to a question."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar, cast

from pydantic import ValidationError

from crp_integrations.adapters.conversations import question_of
from crp_integrations.errors import RequestError
from crp_integrations.gateway.records import ChatRequest, extra_fields
from crp_integrations.gateway.responses import JSON, GatewayResponse, refusal_response
from crp_integrations.gateway.settings import GatewaySettings
from crp_integrations.messages import Message
from crp_integrations.records import Part
from crp_integrations.relay.question_fields import QuestionFields, from_headers
from crp_integrations.relay.settings import first_problem

# Fields that are passed to the upstream unchanged unless they are empty.
UPSTREAM_FIELDS: Final = (
    "top_p", "stop", "max_completion_tokens", "presence_penalty", "frequency_penalty",
    "logit_bias", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "service_tier", "reasoning_effort", "verbosity", "store", "metadata", "prediction",
    "response_format", "tool_choice", "parallel_tool_calls",
)  # fmt: skip
# Fields with this prefix never go to a provider, even if an operator lists them.
CRP_PREFIX: Final = "crp"
# Maximum number of names in an object: each unknown one costs a validation error.
MAX_NAMES: Final = 10_000
# Maximum length of an error's field path, which grows with the nesting of the body.
MAX_PLACE: Final = 120

_Model = TypeVar("_Model", bound=Part)


class ModelUnlisted(RequestError):
    """The gateway does not allow a model of that name."""

    status_hint = 404
    param = "model"


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A chat request, converted for the relay.

    Attributes:
        query: the last message of the user.
        asking: fields of the question, for the relay.
        arguments: further fields for the upstream.
        stream: whether the caller wants server-sent events.
        usage: whether the stream ends with the usage.
    """

    query: str
    asking: QuestionFields
    arguments: Mapping[str, Any]
    stream: bool
    usage: bool

    @property
    def model(self) -> str:
        """The requested model."""
        return str(self.asking.get("model"))


def read_json(data: bytes) -> Any:
    """Parse a body as JSON."""
    try:
        # Decoded here, since `json.loads` would also accept bytes in UTF-16 and UTF-32.
        text = data.decode("utf-8-sig")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_names)
    except (ValueError, RecursionError):
        raise RequestError(
            "the body is not JSON in UTF-8 with unique names; send one object"
        ) from None


def read_as(kind: type[_Model], value: Any) -> _Model:
    """Validate a JSON value as a record."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        field, problem = first_problem(error)
        place = field[:MAX_PLACE]
        refused = RequestError(f"{place or 'the body'} is not usable: {problem}")
        refused.param = place or None
        raise refused from None


def read_question(
    data: bytes, headers: Sequence[tuple[str, str]], limits: GatewaySettings
) -> ChatQuestion:
    """Convert a request to a question.

    Only the user's last message is the query for the fabric; the others are sent as history.
    """
    own, aside = extra_fields(read_json(data), limits.pass_fields)
    request = read_as(ChatRequest, own)
    _check_length("the conversation has {} messages", len(request.messages), limits.messages)
    asked = question_of([message.model_dump(exclude_none=True) for message in request.messages])
    around = len(asked.system) + sum(map(_message_length, asked.history))
    template = "the messages other than the question have {} characters"
    _check_length(template, around, limits.conversation_characters)
    asking = from_headers(headers)
    if request.seed is not None and asking.get("seed", request.seed) != request.seed:
        raise RequestError("seed and CRP-LLM-Reproducibility-Seed differ; give one of them")
    fields: dict[str, Any] = {
        **asking,
        "model": request.model,
        "system_prompt": asked.system,
        "history": asked.history,
        "results": asked.results,
        "max_tokens": request.max_completion_tokens or request.max_tokens,
        "temperature": request.temperature,
        "tools": request.tools,
        **({"seed": request.seed} if request.seed is not None else {}),
        **(request.crp.model_dump(exclude_none=True) if request.crp else {}),
    }
    questions = (asked.question, *(fields.get("sub_queries") or ()))
    template = "the question and its sub-queries have {} characters"
    _check_length(template, sum(map(len, questions)), limits.question_characters)
    handed = {
        **request.model_dump(mode="json", include=set(UPSTREAM_FIELDS), exclude_none=True),
        **aside,
    }
    written = _encoded_length(handed) + (len(json.dumps(request.tools)) if request.tools else 0)
    template = "the fields other than the messages have {} characters as JSON"
    _check_length(template, written, limits.field_characters)
    options = request.stream_options
    return ChatQuestion(
        query=asked.question,
        asking=cast(
            "QuestionFields", {name: value for name, value in fields.items() if value is not None}
        ),
        arguments=handed,
        stream=bool(request.stream),
        usage=bool(options and options.include_usage),
    )


def check_model(model: str, listed: Sequence[str]) -> None:
    """Raise if the gateway does not allow a model."""
    if not model or (listed and model not in listed):
        raise ModelUnlisted(
            f"model {model!r:.120} is not one of the allowed models: "
            f"{', '.join(sorted(listed)) or 'any name'}"
        )


def _message_length(message: Message) -> int:
    return len(message.content) + sum(
        len(call.name) + len(call.arguments) for call in message.tool_calls
    )


def _check_length(template: str, length: int, most: int) -> None:
    if length > most:
        raise RequestError(f"{template.format(length)}, at most {most} are accepted")


def _encoded_length(arguments: dict[str, Any]) -> int:
    """Length of arguments as JSON; raises if they contain CRP fields or are not JSON."""
    for name in arguments:
        if name.lower().startswith(CRP_PREFIX):
            raise RequestError(f"field {name!r:.40} would send CRP metadata to a provider")
    try:
        return len(json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError):
        raise RequestError("a field has a character that is not valid Unicode text") from None


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; duplicate names are refused, since readers differ in which value they take."""
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError
    if len(names) > MAX_NAMES:
        raise RequestError(f"an object of the body has more than {MAX_NAMES} names")
    return names


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


CLOSE: Final = {"Connection": "close"}
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_SUFFIX: Final = "+json"
_PLAIN: Final = frozenset({"", "identity"})


def refuse_two_lengths(headers: Iterable[tuple[bytes, bytes]]) -> GatewayResponse | None:
    """The refusal of a body with two lengths, since servers may disagree on where it ends.

    RFC 9112 §6.1 allows a server to refuse it.
    """
    names = {name.lower() for name, _ in headers}
    if not {b"transfer-encoding", b"content-length"} <= names:
        return None
    return refusal_response(
        400,
        "two_lengths",
        "the body has Content-Length and Transfer-Encoding; send one of them",
        CLOSE,
    )


def refuse_media_type(headers: Iterable[tuple[bytes, bytes]]) -> GatewayResponse | None:
    """The refusal of a body that is not JSON according to its headers; None if it may be read."""
    for name, value in headers:
        text = value.decode("latin-1").strip().lower()
        if name.lower() == b"content-encoding" and text not in _PLAIN:
            return _unsupported_response(f"the body is encoded as {text!r:.40}; send it unencoded")
        if name.lower() == b"content-type" and not _is_json(text):
            return _unsupported_response(f"the body is {text!r:.80}; send {JSON} in UTF-8")
    return None


def _is_json(media_type: str) -> bool:
    kind, *parameters = (part.strip() for part in media_type.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in _CHARSETS:
            return False
    return kind == JSON or (kind.startswith("application/") and kind.endswith(_SUFFIX))


def _unsupported_response(message: str) -> GatewayResponse:
    return refusal_response(415, "unsupported_media_type", message, CLOSE)
