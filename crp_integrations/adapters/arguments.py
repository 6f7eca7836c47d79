"""Checks of constructor arguments, so that a mistake raises there and not at the first question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationError

from crp_integrations.dpe.records import Report
from crp_integrations.errors import RequestError
from crp_integrations.governance.memory_writer import Emitter
from crp_integrations.messages import Message
from crp_integrations.policy.policy_text import parse_policy
from crp_integrations.ports import Embedder
from crp_integrations.relay.budget import refuse_storeless
from crp_integrations.relay.composition import AUTO
from crp_integrations.relay.defaults import chosen_settings
from crp_integrations.relay.judge import (
    BACKGROUND,
    JUDGE_OPTIONS,
    Judge,
    JudgeSource,
    OnReport,
    check_options,
    check_receiver,
    refuse_own,
)
from crp_integrations.relay.question_fields import admit
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.session_admission import require_reader_of
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary import BudgetTokens, GroundingMode

# An error quotes values of these types; of others, which may contain secrets, it names the type.
_QUOTED_TYPES: Final = (str, int, float, type(None))
_SECRET_FIELDS: Final = ("api_key", "headers", "options")
# Prefix that pydantic puts before the message of a validator that raises ValueError.
_VALIDATOR_PREFIX: Final = "Value error, "
# Suffix that pydantic adds to a budget's field name when its integer branch fails.
_INTEGER_BRANCH: Final = ".constrained-int"
_ANY_MODEL: Final = "extractive"
_POLICIES: Final = ("policy", "report_only")
# Budget that a component packs into: a number of tokens, as many as the question needs, or the
# model's whole context window.
PackBudget = Annotated[int, Field(ge=1)] | Literal["auto", "window"]


def check_relay(relay: object, taker: str) -> None:
    """Check that an argument is a Relay."""
    if not isinstance(relay, Relay):
        raise RequestError(
            f"{taker} takes a relay, as Relay.open(…) gives it, not {type(relay).__name__}"
        )


def check_packing(
    *, budget_tokens: BudgetTokens | None, k: int | None, grounding: GroundingMode | str
) -> None:
    """Check the packing budget, `k` and the grounding mode."""
    if budget_tokens in ("auto", "window"):
        budget_tokens = None
    for name, value in (("budget_tokens", budget_tokens), ("k", k)):
        if value is not None:
            check_count(name, value, least=1, or_none=True)
    if grounding not in tuple(GroundingMode):
        wanted = ", ".join(GroundingMode)
        raise RequestError(f"grounding {str(grounding)!r:.40} is not one of {wanted}")


def check_count(
    name: str, value: object, *, least: int, most: int | None = None, or_none: bool = False
) -> None:
    """Check that a value is an integer of at least `least`, and at most `most`."""
    wrong = isinstance(value, bool) or not isinstance(value, Integral) or value < least
    if wrong or (most is not None and int(str(value)) > most):
        rest = ", or None" if or_none else f" and at most {most}" if most is not None else ""
        raise RequestError(
            f"{name} is {value!r:.40}, wanted a whole number of at least {least}{rest}"
        )


def check_callables(**hooks: object) -> None:
    """Check that every value is callable or None."""
    for name, value in hooks.items():
        if value is not None and not callable(value):
            raise RequestError(f"{name} is {type(value).__name__}; give a function of one argument")


def check_embedder(embedder: object) -> None:
    """Check that an argument is an embedder."""
    if isinstance(embedder, type) or not isinstance(embedder, Embedder):
        raise RequestError(
            f"embedder is {type(embedder).__name__}; give a fabric's, as relay.fabric.embedder"
        )


def check_emitter(emitter: object, taker: str) -> None:
    """Check that an argument is an Emitter."""
    if not isinstance(emitter, Emitter):
        raise RequestError(
            f"{taker} takes an Emitter of crp_integrations.governance.memory_writer, not "
            f"{type(emitter).__name__}"
        )


def check_values(asking: Mapping[str, Any], relay: Relay | None = None, *, taker: str = "") -> None:
    """Check the fields that a component adds to each of its questions.

    Args:
        taker: name of a component whose calls bring no judge of their own. Empty where a call may
            bring one; the call itself then reports what its policy cannot measure.

    Raises:
        RequestError: a field has no usable value.
        ConfigError: nothing can measure what the policy demands.
    """
    fields = {name: value for name, value in asking.items() if value is not None}
    judged = {name: fields.pop(name) for name in JUDGE_OPTIONS if name in fields}
    judge = fields.pop("judge", None)
    check_receiver(judged.get("on_report"))
    if judge is None and relay is not None:
        judge = relay.judge
    made = None
    if judge is not None or relay is not None:
        made = Judge.of(judge, relay.settings.judge if relay else None, **judged)
    if fields.get("strategy") == AUTO:
        # AUTO is not a strategy: the relay chooses one for each question.
        del fields["strategy"]
    admit(**{"model": _ANY_MODEL, **fields, "query": "?"})
    for name in _POLICIES:
        if asking.get(name):
            parse_policy(asking[name])
    if taker and relay is not None:
        require_reader_of(taker, fields, made, relay.settings, relay._world.engines.verifier)


@contextmanager
def pydantic_errors(taker: type[Any]) -> Iterator[None]:
    """Raise pydantic's errors on a component's fields as errors of this package."""
    try:
        yield
    except ValidationError as error:
        raise RequestError(_problem(taker, error)) from None


def _problem(taker: type[Any], error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    field, problem, value = ".".join(map(str, first["loc"])), first["msg"], first["input"]
    if first["type"] == "missing":
        return f"{taker.__name__} needs {field}=…"
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(taker.model_fields))
        return f"{taker.__name__} has no field {field!r:.40}; it takes {known}"
    if field.endswith(_INTEGER_BRANCH):
        field, problem = field.removesuffix(_INTEGER_BRANCH), f"{problem}, auto or window"
    if not field or problem.startswith(_VALIDATOR_PREFIX):
        return problem.removeprefix(_VALIDATOR_PREFIX)
    if first["type"] == "tuple_type":
        # Users write a list; that the field stores a tuple is an internal detail.
        problem = "wanted a list"
    plain = isinstance(value, _QUOTED_TYPES) and field.partition(".")[0] not in _SECRET_FIELDS
    seen = f"{value!r:.40}" if plain else f"of type {type(value).__name__}"
    return f"{field} of {taker.__name__} is {seen}: {problem[:1].lower()}{problem[1:]}"


ComponentReport = TypeVar("ComponentReport")


def judge_for(
    taker: str,
    judge: JudgeSource,
    options: Mapping[str, Any],
    settings: Settings | None = None,
    *,
    relay: Relay | None = None,
    reports_itself: bool = False,
) -> Judge | None:
    """The judge of a component; it keeps its cache and budget between questions."""
    check_options(taker, options)
    refuse_own(judge, taker)
    chosen = {name: value for name, value in options.items() if value is not None}
    if relay is not None:
        settings = relay.settings
        own = relay.judge is not None and relay.judge.own
        if judge is None:
            judge = relay.judge if relay.judge is not None and not own else False
    if reports_itself and not (isinstance(judge, Judge) and judge.on_report is not None):
        chosen.setdefault("on_report", _ignore_report)
    made = Judge.of(judge, chosen_settings(settings).judge, **chosen)
    if made is not None and relay is None:
        refuse_storeless(made.settings)
    return made


def late_report_hook(
    judge: Judge | None,
    on_report: Callable[[ComponentReport], None] | None,
    made: Callable[[Report], ComponentReport],
) -> OnReport | None:
    """Callback for the report after a background judge has answered; None if there is none."""
    if judge is None or on_report is None or judge.settings.mode != BACKGROUND:
        return None
    return lambda report: on_report(made(report))


def examined_conversation(messages: Sequence[Message], *, talk: bool = True) -> tuple[Message, ...]:
    """The messages before the question that a call answers, and all tool results, in order.

    Args:
        talk: False leaves out messages of user and assistant; tool results and system messages
            stay.
    """
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    until = places[-1] if places else 0
    conversation = []
    for place, message in enumerate(messages):
        is_talk = talk and place < until and message.role in ("user", "assistant")
        if is_talk or message.role in ("tool", "system"):
            conversation.append(message)
        elif message.tool_calls:
            # Kept without text: its calls name the tools whose results follow.
            conversation.append(message.changed(content=""))
    return tuple(conversation)


def _ignore_report(report: Report) -> None:
    """Do nothing: the component hands out its reports itself."""
