"""Numbers and choices of the judge: a model that is asked whether an answer holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, SecretStr, field_validator

from crp_integrations.dpe.judge.prompt import LANGUAGES
from crp_integrations.errors import RequestError
from crp_integrations.records import Part

ALWAYS: Final = "always"
DOUBT: Final = "doubt"
_SAMPLE: Final = re.compile(r"sample:(0(?:\.\d+)?|1(?:\.0+)?)")


class JudgeSettings(Part):
    """How a judge is asked, when, and what happens where it fails. Without a model none is asked.

    Attributes:
        model: the judge as LiteLLM names it, such as `openai/gpt-4o-mini`; empty for none.
        api_base: address of its provider; empty for the provider's own.
        api_key: None for the provider's variable in the environment.
        fallback: model that is asked where the first one fails; empty for none.
        when: `always`; `doubt`, unless every claim stands in the evidence word for word or value
            for value; `sample:0.1`, that share of the answers, chosen by their content.
        budget_calls, budget_tokens, budget_usd: most of a session; None for no limit. Cached
            replies count nothing. A call without a known price ends a budget in money.
        mode: `wait`, or `background`: the answer is given out now, and the judge's report goes to
            `on_report`.
        failure: `report`, what the stages without a model call say, marked; or `halt`.
        timeout_s: seconds until one call is given up.
        retries: further attempts after status 408, 409, 429 or 5xx, or no connection.
        temperature: None for the provider's.
        max_tokens: cap on a reply; None for the provider's.
        window_tokens: tokens that the model takes and gives in one call; None for what is known.
        most_calls: calls for one answer, at most; the report names what they did not show.
        concurrency: calls at a time.
        language: of the reasons.
        prompt: instructions in the place of those that ship; they must ask for the same JSON.
        rubric: what to check besides, added to the instructions.
        withhold_labels: access labels of facts that the judge's provider must not get.
        cache_size: replies that are kept in memory, by content; 0 for none.
    """

    model: str = ""
    api_base: str = ""
    api_key: SecretStr | None = None
    fallback: str = ""
    when: str = ALWAYS
    budget_calls: int | None = Field(default=None, ge=0)
    budget_tokens: int | None = Field(default=None, ge=0)
    budget_usd: float | None = Field(default=None, ge=0.0)
    mode: Literal["wait", "background"] = "wait"
    failure: Literal["report", "halt"] = "report"
    timeout_s: float = Field(default=60.0, gt=0.0)
    retries: int = Field(default=2, ge=0)
    temperature: float | None = Field(default=0.0, ge=0.0)
    max_tokens: int | None = Field(default=None, gt=0)
    window_tokens: int | None = Field(default=None, ge=2_000)
    most_calls: int = Field(default=8, ge=1)
    concurrency: int = Field(default=8, ge=1)
    language: str = "en"
    prompt: str = ""
    rubric: str = ""
    withhold_labels: tuple[str, ...] = ()
    cache_size: int = Field(default=1_000, ge=0)

    @field_validator("when")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in (ALWAYS, DOUBT) and not _SAMPLE.fullmatch(value):
            raise ValueError(f"when is {value!r:.40}, wanted always, doubt or sample:0.1")
        return value

    @field_validator("language")
    @classmethod
    def _spoken(cls, value: str) -> str:
        if value not in LANGUAGES:
            raise ValueError(f"language {value!r:.40} is not one of {', '.join(LANGUAGES)}")
        return value

    @property
    def share(self) -> float:
        """Share of the answers that are judged, [0, 1]."""
        found = _SAMPLE.fullmatch(self.when)
        return float(found[1]) if found else 1.0


def reaching(
    settings: JudgeSettings | None, model: object, own: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of the settings, without an address and key that are another judge's."""
    fields = (settings or JudgeSettings()).model_dump()
    named = fields["model"]
    other = isinstance(model, str) and bool(named) and not same_provider(model, named)
    if other or not isinstance(model, str):
        fields |= {"api_base": "", "api_key": None}
    elif "api_base" in own and own["api_base"] != fields["api_base"]:
        fields["api_key"] = None
    return fields


def same_provider(model: str, other: str) -> bool:
    """Whether two names are of one provider; a bare name's is not known without LiteLLM."""
    if model == other:
        return True
    return "/" in model and model.partition("/")[0] == other.partition("/")[0]


def budget_fields(given: int | Mapping[str, float] | None) -> dict[str, Any]:
    """The fields that a budget stands for: calls, or a mapping with `calls`, `tokens` or `usd`.

    Raises:
        RequestError: it is something else.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        odd = set(given) - {"calls", "tokens", "usd"}
        if odd:
            raise RequestError(
                f"judge_budget has {sorted(odd)[0]!r:.40}; give calls, tokens or usd"
            )
        return {f"budget_{name}": value for name, value in given.items()}
    if isinstance(given, bool) or not isinstance(given, int):
        raise RequestError(f"judge_budget is {given!r:.40}; give a number of calls or a mapping")
    return {"budget_calls": given}
