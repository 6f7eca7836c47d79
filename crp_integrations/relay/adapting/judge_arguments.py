"""The judge of a component that examines answers and calls no model itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from crp_integrations.dpe.records import Report
from crp_integrations.messages import Message
from crp_integrations.relay.judge import (
    BACKGROUND,
    Judge,
    JudgeSource,
    OnReport,
    check_options,
    refuse_own,
)
from crp_integrations.relay.relay import Relay
from crp_integrations.relay.settings import Settings, load

Told = TypeVar("Told")


def judge_for(
    taker: str,
    judge: JudgeSource,
    options: Mapping[str, Any],
    settings: Settings | None = None,
    *,
    relay: Relay | None = None,
    heard: bool = False,
) -> Judge | None:
    """The judge of a component, which it keeps with its cache and its budget.

    Args:
        taker: name of the component's class.
        judge: None for the judge of the settings, False for none.
        options: of `JudgeOptions`.
        settings: None reads `CRP_*` and the defaults.
        relay: whose judge it is where none is given, unless that is the model that answers.
        heard: somebody is told of the component's reports, by the component itself.

    Raises:
        RequestError: it is the model that answers, which the component does not call; or an option
            has no usable value.
        ConfigError: what is given is no model.
        TypeError: there is no such option.
    """
    check_options(taker, options)
    refuse_own(judge, taker)
    given = {name: one for name, one in options.items() if one is not None}
    if relay is not None:
        settings = relay.settings
        own = relay.judge is not None and relay.judge.own
        if judge is None:
            judge = relay.judge if relay.judge is not None and not own else False
    if heard and not (isinstance(judge, Judge) and judge.on_report is not None):
        given.setdefault("on_report", _unheard)
    return Judge.of(judge, (settings or load()).judge, **given)


def told_later(
    judge: Judge | None, on_report: Callable[[Told], None] | None, made: Callable[[Report], Told]
) -> OnReport | None:
    """Who is told of a report once a judge in the background has spoken; None for nobody.

    Args:
        on_report: the component's own hook, which takes what `made` makes of a report.
    """
    if judge is None or on_report is None or judge.settings.mode != BACKGROUND:
        return None
    return lambda report: on_report(made(report))


def before_question(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What was said before the question that a call answers, without system messages."""
    places = [place for place, one in enumerate(messages) if one.role == "user"]
    until = places[-1] if places else 0
    return tuple(one for one in messages[:until] if one.role in ("user", "assistant"))


def _unheard(report: Report) -> None:
    """The component tells of its reports itself."""
