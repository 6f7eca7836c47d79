"""Context assembly of CFS-021 behind the front door: settings, tokenizer, cache, view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pydantic import ValidationError

from crp_integrations.envelope.cfs.assembly import ContextCache, assemble_context
from crp_integrations.envelope.cfs.records import AssembledContext, AssemblySettings, TokenBudget
from crp_integrations.envelope.cfs.search import run_in_turn
from crp_integrations.envelope.cfs.tokens import ContextTokenizer, ModelTokenizer, SimpleTokenizer
from crp_integrations.envelope.screen import ResultScreen
from crp_integrations.errors import RequestError
from crp_integrations.relay.admit import checked_session
from crp_integrations.relay.settings import first_problem
from crp_integrations.relay.world import World

Left = TypeVar("Left")
Right = TypeVar("Right")


def assembled(
    world: World,
    cache: ContextCache,
    query: str,
    *,
    budget: int | TokenBudget,
    model: str | None,
    session_id: str,
    residency: str,
    choices: Mapping[str, Any],
) -> AssembledContext:
    """Assemble a context of a relay's fabric.

    Spec: CFS-021 §11

    Args:
        budget: tokens in all, of which the settings' reserves are kept free; or a whole budget.
        model: whose tokens are counted; None takes the settings' model, or with the setting
            `tokenizer = "simple"` four characters a token.
        session_id: whose facts in memory are searched too; such a context is not cached.
        choices: fields of `AssemblySettings` for this context alone.

    Raises:
        RequestError: an argument has no usable value; names it.
        EngineError: the settings have results screened, and a model that is asked too failed.
    """
    settings = _chosen(world.settings.envelope.assembly, choices)
    namespace = world.namespace_in(residency)
    view = namespace.view(checked_session(session_id)) if session_id else namespace
    tokenizer: ContextTokenizer
    if model is None and settings.tokenizer == "simple":
        tokenizer = SimpleTokenizer()
    else:
        tokenizer = ModelTokenizer(world.counter_for(model or world.settings.model))
    subject, screening = namespace.subject, world.settings.envelope.screening
    with world.tracer.step("assemble"):
        return assemble_context(
            query,
            view,
            _budget(budget, settings),
            tokenizer,
            now=world.clock.now(),
            settings=settings,
            both=at_once if settings.parallel_search else run_in_turn,
            cache=None if session_id else cache,
            scope="\u241f".join((subject.tenant, subject.name, residency.lower())),
            screen=ResultScreen(screening, world.detector) if screening.enabled else None,
        )


def at_once(left: Callable[[], Left], right: Callable[[], Right], /) -> tuple[Left, Right]:
    """The left one in a thread of its own, the right one here.

    Spec: CFS-021 §Parallel
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(left)
        right_gave = right()
        return running.result(), right_gave


def _chosen(settings: AssemblySettings, choices: Mapping[str, Any]) -> AssemblySettings:
    given = {name: value for name, value in choices.items() if value is not None}
    if not given:
        return settings
    try:
        return AssemblySettings.model_validate({**settings.model_dump(), **given})
    except ValidationError as error:
        field, problem = first_problem(error)
        value = given.get(field)
        raise RequestError(f"{field} {value!r:.60} is not usable: {problem}") from error


def _budget(budget: int | TokenBudget, settings: AssemblySettings) -> TokenBudget:
    if isinstance(budget, TokenBudget):
        return budget
    try:
        return TokenBudget.new(budget, settings)
    except ValidationError as error:
        raise RequestError(
            f"budget is {budget!r:.60}, wanted a TokenBudget or whole tokens from 0"
        ) from error
