"""The ways to ask: whole, as a stream, many at once, or a window at a time."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, closing
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar, Unpack, cast

from crp_integrations.envelope.assemble import preview
from crp_integrations.envelope.records import EnvelopePreview
from crp_integrations.governance.compaction.records import CompactHistory
from crp_integrations.governance.settings import HistorySettings
from crp_integrations.governance.window_trace import Observer
from crp_integrations.ports import Model, Tracer
from crp_integrations.relay import steps
from crp_integrations.relay.compaction import compact_messages
from crp_integrations.relay.drive import (
    adrive,
    adrive_live,
    adrive_stream,
    drive,
    drive_live,
    drive_stream,
)
from crp_integrations.relay.judge import JUDGE_OPTIONS, Judge, check_receiver
from crp_integrations.relay.judged_answer import Judges, asks_later
from crp_integrations.relay.prompt import Conversation
from crp_integrations.relay.question_fields import QuestionFields, admit, admit_depth
from crp_integrations.relay.records import Answer, Request, conversation_of
from crp_integrations.relay.steps import Outcome
from crp_integrations.relay.strategies.composition import (
    IN_PARTS,
    Batch,
    BatchTurns,
    Composition,
    choose_strategy,
    compose,
    intent,
)
from crp_integrations.relay.turn import Turn
from crp_integrations.relay.world import World
from crp_integrations.validation import several

StreamPart = TypeVar("StreamPart")


def trace_stream(tracer: Tracer, name: str, parts: Generator[StreamPart]) -> Generator[StreamPart]:
    """The same pieces, made within a step that ends with the last of them.

    It ends with an error too, and where nobody listens any more.
    """
    own = copy_context()
    inner = _in_step(tracer, name, parts)
    try:
        while True:
            try:
                part = own.run(next, inner)
            except StopIteration:
                return
            yield part
    finally:
        own.run(inner.close)


async def atrace_stream(
    tracer: Tracer, name: str, parts: AsyncGenerator[StreamPart]
) -> AsyncGenerator[StreamPart]:
    """The asynchronous twin of `trace_stream`."""
    own = copy_context()
    inner = _ain_step(tracer, name, parts)
    try:
        while True:
            try:
                part = await _AwaitedInContext(own, anext(inner))
            except StopAsyncIteration:
                return
            yield part
    finally:
        await _AwaitedInContext(own, inner.aclose())


def _in_step(tracer: Tracer, name: str, parts: Generator[StreamPart]) -> Generator[StreamPart]:
    with closing(parts), tracer.step(name):
        yield from parts


async def _ain_step(
    tracer: Tracer, name: str, parts: AsyncGenerator[StreamPart]
) -> AsyncGenerator[StreamPart]:
    with tracer.step(name):
        async with aclosing(parts):
            async for part in parts:
                yield part


class _AwaitedInContext(Generic[StreamPart]):
    """Something awaited in a context; a task of its own would be cancelled by itself."""

    def __init__(self, own: Context, awaited: Awaitable[StreamPart]) -> None:
        self._own = own
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, StreamPart]:
        coming: Any = self._awaited.__await__()
        go_on: Callable[[], Any] = partial(coming.send, None)
        while True:
            try:
                waits_for = self._own.run(go_on)
            except StopIteration as done:
                part: StreamPart = done.value
                return part
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is the awaited one's to handle
                go_on = partial(coming.throw, error)
            else:
                go_on = partial(coming.send, sent)


# The strategy that the question's words ask for.
AUTO: Final = "auto"


# The steps around a question; a stream's lasts until its reader has the last piece, or stops.
ASK: Final = "ask"
STREAM: Final = "stream"


class Questions:
    """The questions that a relay takes."""

    def __init__(
        self, world: World, models: Model, known: Callable[[str], None], residency: str
    ) -> None:
        self._world = world
        self._models = models
        self._known = known
        self._residency = residency
        self._judges = Judges(world.settings.judge)

    @property
    def observer(self) -> Observer | None:
        """The observer of windows and model calls, for callers that call a model themselves."""
        return self._world.observer

    @property
    def judge(self) -> Judge | None:
        """The judge of the answers; None where there is none."""
        return self._world.judge

    @property
    def tracer(self) -> Tracer:
        """The tracer of a question's spans, for callers that play its windows themselves."""
        return self._world.tracer

    def context_limit(self, model: str = "") -> tuple[int, str]:
        """Tokens that a model accepts, and where the number is from.

        Args:
            model: empty for the settings' own.

        Returns:
            Tokens, and `setting`, `stated`, `litellm`, `family NAME` or `default`.
        """
        return self._world.limit_for(model or self._world.settings.model)

    def turn(self, query: str, **asking: Unpack[QuestionFields]) -> Turn:
        """A window for callers that call the model: `begin`, then `receive` or `fail`."""
        world = self._judging(asking)
        return Turn(self._request(query, asking), world)

    def play(self, query: str, **asking: Unpack[QuestionFields]) -> Composition:
        """A question as `ask` plays it: windows of its strategy, continued while incomplete."""
        world = self._judging(asking)
        return compose(self._request(query, asking), world)

    def ask(self, query: str, **asking: Unpack[QuestionFields]) -> Answer:
        """Answer a question from the fabric, checked and sealed."""
        turn = self.play(query, **asking)
        self._known(turn.request.model)
        with self._world.tracer.step(ASK):
            return steps.answer_of(drive(turn, self._models))

    async def aask(self, query: str, **asking: Unpack[QuestionFields]) -> Answer:
        """The asynchronous twin of `ask`."""
        turn = self.play(query, **asking)
        await asyncio.to_thread(self._known, turn.request.model)
        with self._world.tracer.step(ASK):
            return steps.answer_of(await adrive(turn, self._models))

    def stream(
        self, query: str, *, live: bool = False, **asking: Unpack[QuestionFields]
    ) -> Iterator[str | Answer]:
        """Pieces of the answer, released after the verdict, then the `Answer`.

        The model is called as a stream; nothing is released before the whole text is examined.
        """
        world = self._judging(asking)
        request = self._request(query, asking)
        self._known(request.model)
        parts: Generator[str | Outcome]
        if live and request.strategy not in IN_PARTS:
            parts = drive_live(Turn(request, world), self._models)
        else:
            parts = drive_stream(compose(request, world), self._models)
        # A reader who stops early ends the stream at once.
        with closing(trace_stream(self._world.tracer, STREAM, _answered(parts))) as pieces:
            yield from pieces

    async def astream(
        self, query: str, *, live: bool = False, **asking: Unpack[QuestionFields]
    ) -> AsyncIterator[str | Answer]:
        """The asynchronous twin of `stream`."""
        world = self._judging(asking)
        request = self._request(query, asking)
        await asyncio.to_thread(self._known, request.model)
        parts: AsyncGenerator[str | Outcome]
        if live and request.strategy not in IN_PARTS:
            parts = adrive_live(Turn(request, world), self._models)
        else:
            parts = adrive_stream(compose(request, world), self._models)
        async with aclosing(atrace_stream(self._world.tracer, STREAM, _aanswered(parts))) as pieces:
            async for part in pieces:
                yield part

    def batch(self, queries: Sequence[str], **asking: Unpack[QuestionFields]) -> Batch:
        """Answer several questions together, each in a session of its own.

        Spec: related facts §7
        """
        questions = several(queries, "queries", "a list, such as [question]")
        world = self._judging(asking)
        requests = [self._request(query, asking) for query in questions]
        for model in {request.model for request in requests}:
            self._known(model)
        together = BatchTurns(requests, world)
        with self._world.tracer.step("batch"):
            drive(together, self._models)
        return together.batch()

    async def abatch(self, queries: Sequence[str], **asking: Unpack[QuestionFields]) -> Batch:
        """The asynchronous twin of `batch`."""
        questions = several(queries, "queries", "a list, such as [question]")
        world = self._judging(asking)
        requests = [self._request(query, asking) for query in questions]
        for model in {request.model for request in requests}:
            await asyncio.to_thread(self._known, model)
        together = BatchTurns(requests, world)
        with self._world.tracer.step("batch"):
            await adrive(together, self._models)
        return together.batch()

    def preview(self, query: str, **asking: Unpack[QuestionFields]) -> EnvelopePreview:
        """What the envelope for a question would be; no model is called, nothing is sealed.

        Spec: CRP-SPEC-003 §12
        """
        turn = self.turn(query, **asking)
        self._known(turn.request.model)
        return preview(turn.preview())

    def compact(
        self,
        messages: Conversation,
        *,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        question: str | None = None,
        budget_tokens: int | None = None,
        ids: Sequence[str] | None = None,
        pinned: Collection[str] = (),
        session_id: str = "",
        residency: str | None = None,
        settings: HistorySettings | None = None,
    ) -> CompactHistory:
        """Shorten an agent's messages where there is a reason to; nothing is journalled.

        Hand the account to the question that they are sent with (`compaction=`), and it is
        journalled with its window.

        Spec: Summit §Compression Strategy
        """
        own = self._world.settings.compaction.model_copy(update={"enabled": True})
        return compact_messages(
            conversation_of(messages),
            self._world,
            settings or own,
            model=model or self._world.settings.model,
            tools=tools,
            question=question,
            budget=budget_tokens,
            ids=ids,
            pinned=pinned,
            residency=self._residency if residency is None else residency,
            session_id=session_id,
        )

    def _judging(self, asking: QuestionFields) -> World:
        """The world with the judge of one question; takes its fields out of the others."""
        named = cast("dict[str, Any]", asking)
        source = named.pop("judge", None)
        options = {name: named.pop(name, None) for name in JUDGE_OPTIONS}
        chosen = {name: value for name, value in options.items() if value is not None}
        if source is None and not chosen:
            return self._world
        if source is None:
            # The relay's own judge, asked in another way.
            source = self._world.judge
        on_report = chosen.get("on_report", self._world.on_report)
        check_receiver(on_report)
        if not asks_later(source, chosen, self._world.settings.judge):
            chosen.pop("on_report", None)
        elif on_report is chosen.get("on_report"):
            # It is called once the judge has spoken.
            on_report = None
        return replace(self._world, judge=self._judges.of(source, chosen), on_report=on_report)

    def _request(self, query: str, asking: QuestionFields) -> Request:
        fields = {name: value for name, value in asking.items() if value is not None}
        own = {"model": self._world.settings.model, "residency": self._residency}
        if fields.get("strategy") == AUTO:
            fields["strategy"] = intent(query)
        request = admit(**{**own, **fields, "query": query})
        admit_depth(request, self._world.settings)
        accepted = request.accept_strategies
        if accepted and "strategy" not in fields:
            return request.changed(strategy=accepted[0])
        strategy = choose_strategy(request.strategy, accepted)
        return request if strategy is request.strategy else request.changed(strategy=strategy)


def _answered(parts: Generator[str | Outcome]) -> Generator[str | Answer]:
    with closing(parts):
        for part in parts:
            yield part if isinstance(part, str) else steps.answer_of(part)


async def _aanswered(parts: AsyncGenerator[str | Outcome]) -> AsyncGenerator[str | Answer]:
    async with aclosing(parts):
        async for part in parts:
            yield part if isinstance(part, str) else steps.answer_of(part)
