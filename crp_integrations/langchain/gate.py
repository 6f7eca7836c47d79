"""A Runnable that passes an answer on, or raises before any chunk of it is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final, Unpack
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages
from langchain_core.outputs import Generation
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import coerce_to_runnable
from langchain_core.runnables.config import patch_config
from langchain_core.runnables.utils import AddableDict

from crp_integrations.adapters.answer_gate import (
    AnswerGate,
    CheckedAnswer,
    Context,
    GivenAnswer,
    OnFlag,
    Reviewer,
    repair_metadata,
    with_repaired_text,
)
from crp_integrations.adapters.observed_answers import Attach, attachment_of, check_attach
from crp_integrations.dpe.records import Report
from crp_integrations.dpe.repair import Repair
from crp_integrations.engines.models import text_pieces
from crp_integrations.envelope.records import Envelope
from crp_integrations.errors import RequestError, SafetyHalt
from crp_integrations.fabric.records import Fact
from crp_integrations.langchain.messages import (
    METADATA_KEY,
    facts_of,
    message_chunks,
    repaired_content,
    structured_text,
)
from crp_integrations.langchain.model import streaming_suppressed, without_streaming
from crp_integrations.langchain.runs import RunTreeHandler
from crp_integrations.policy.inheritance import flag_actions
from crp_integrations.relay.defaults import EmbedderSource
from crp_integrations.relay.evidence import answer_text
from crp_integrations.relay.judge import JudgeOptions, JudgeSource
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary.context import GroundingMode
from crp_integrations.vocabulary.safety import FlagAction, HaltReason

ANSWERS: Final = ("answer", "output", "response", "result")
QUESTIONS: Final = ("question", "input", "query")
CONTEXT: Final = "context"
# Keys of LangChain's output with `include_raw=True`: the message and the parsed object.
_RAW_KEYS: Final = frozenset({"raw", "parsed", "parsing_error"})

NO_CHAIN: Final = "ask-again needs the chain that answered; give it to CRPGate.around(chain, …)"


class CRPGate(Runnable[Any, Any]):
    """Examines an answer against its context and raises `SafetyHalt`, or passes it on.

    As the last step of a chain it takes a dict with `answer` (or `output`, `response`, `result`),
    `context` (documents, texts, an envelope) and optionally `question` (or `input`, `query`), and
    returns it with a summary of the report as `crp`. `CRPGate.around(chain)` runs a chain inside,
    which also hides its steps from the streams of LangChain and LangGraph. A stream yields the
    answer in pieces, all of them after the verdict.

    Spec: CRP-SPEC-005 §1.2; related facts §6

    Args:
        policy: rules for releasing an answer, in the policy language. `halt-on` and other
            demands on truth need a judge, a verifier that reads, or `unchecked allow`.
        reviewer: asked if the policy requires a person's approval; None withholds the answer.
        settings: None reads the `CRP_*` variables and the defaults; their policy applies too.
        attach: how much of the report is attached: `full`, `summary` (at most 700 bytes), `id`.
        on_flag, on_flag_level, most_again: what is done with a flagged answer before the policy
            decides, as in `Relay.ask`; `ask-again` runs the chain of `around` again.
        judge, judge_options: as in `examine`; the policy uses the judge's level. `on_report` is
            called with each answer's `Report`, also if the answer is withheld.
        chain: what `around` wraps; None if the input contains the answer.

    Raises:
        PolicySyntaxError: the policy does not follow its grammar.
        RequestError: an argument has no usable value, or the judge is True.
        ConfigError: a component has the wrong type, or there is nothing that can check what the
            policy demands.
    """

    def __init__(
        self,
        policy: str = "halt-on HIGH",
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        reviewer: Reviewer | None = None,
        embedder: EmbedderSource | None = None,
        settings: Settings | None = None,
        name: str | None = None,
        attach: Attach = "summary",
        on_flag: OnFlag = FlagAction.REPORT,
        on_flag_level: str | None = None,
        most_again: int = 1,
        judge: JudgeSource = None,
        chain: Runnable[Any, Any] | None = None,
        **judge_options: Unpack[JudgeOptions],
    ) -> None:
        if chain is None and FlagAction.ASK_AGAIN in flag_actions(on_flag):
            raise RequestError(NO_CHAIN)
        self._gate = AnswerGate(
            "CRPGate",
            policy,
            grounding=grounding,
            reviewer=reviewer,
            embedder=embedder,
            settings=settings,
            on_flag=on_flag,
            on_flag_level=on_flag_level,
            most_again=most_again,
            judge=judge,
            options=judge_options,
        )
        check_attach(attach)
        self._attach = attach
        self.name = name
        self.chain = chain

    @classmethod
    def around(cls, chain: Runnable[Any, Any], policy: str = "halt-on HIGH", **how: Any) -> CRPGate:
        """Wrap a chain so that its answer is released only after the verdict.

        Its retrievers' documents are the context, its input the question, its output the answer.

        Args:
            chain: any Runnable with retrievers inside that returns a message, a text, a structure,
                or a dict with an `answer` (and optionally its own `context`).

        Raises:
            RequestError: LangChain cannot convert the chain to a Runnable.
        """
        try:
            guarded: Runnable[Any, Any] = coerce_to_runnable(chain)
        except TypeError as error:
            raise RequestError(f"the chain is {type(chain).__name__}, not a Runnable") from error
        gate = cls(policy, **how, chain=guarded)
        gate.name = gate.name or f"guarded {guarded.get_name()}"
        return gate

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Return the output with its report, after the verdict.

        Raises:
            SafetyHalt: the answer is withheld; the report is on the error.
            QualityUnreachable: the answer is below the quality that the policy demands.
            RequestError: there is no answer, or no context.
        """
        return self._call_with_config(self._checked, input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The asynchronous twin of `invoke`; examines in a worker thread."""
        return await self._acall_with_config(self._achecked, input, config, **kwargs)

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """The output of `invoke` in pieces of its answer, all of them after the verdict."""

        def parts(
            inputs: Iterator[Any], run_manager: Any, config: RunnableConfig, **options: Any
        ) -> Iterator[Any]:
            for value in inputs:
                yield from output_chunks(self._checked(value, run_manager, config, **options))

        return self._transform_stream_with_config(iter((input,)), parts, config, **kwargs)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """The asynchronous twin of `stream`."""

        async def parts(
            inputs: AsyncIterator[Any], run_manager: Any, config: RunnableConfig, **options: Any
        ) -> AsyncIterator[Any]:
            async for value in inputs:
                output = await self._achecked(value, run_manager, config, **options)
                for part in output_chunks(output):
                    yield part

        source = _single_input(input)
        async for part in self._atransform_stream_with_config(source, parts, config, **kwargs):
            yield part

    def check(self, answer: Any, context: Context, question: str = "") -> Report:
        """Examine an answer as it is, and return its report if the answer may be shown.

        Raises:
            SafetyHalt: the answer is withheld; the report is on the error.
            QualityUnreachable: the answer is below the quality that the policy demands.
            RequestError: the answer, the question or the context has the wrong type.
        """
        return self._gate.check(_given(answer, answer, context, question))

    async def acheck(self, answer: Any, context: Context, question: str = "") -> Report:
        """The asynchronous twin of `check`; examines in a worker thread."""
        return await self._gate.acheck(_given(answer, answer, context, question))

    def _checked(self, input: Any, run_manager: Any, config: Any, **kwargs: Any) -> Any:
        chain = self.chain
        if chain is None:
            return self._with_report(self._gate.act(self._read(input), _with_text))

        self._must_ask(input)

        def run(value: Any) -> GivenAnswer:
            handler = _ChainDocuments(run_manager.run_id)
            inner = handler.inner_config(config, run_manager.get_child())
            # A chain with its own config also adds the handlers of the surrounding run.
            with streaming_suppressed():
                output = chain.invoke(value, inner, **kwargs)
            return _given(output, _answer(output), _context(output, handler), question_in(input))

        def again(words: str) -> GivenAnswer:
            return run(with_words(input, words))

        return self._with_report(self._gate.act(run(input), _with_text, again))

    async def _achecked(self, input: Any, run_manager: Any, config: Any, **kwargs: Any) -> Any:
        chain = self.chain
        if chain is None:
            return self._with_report(await self._gate.aact(self._read(input), _with_text))

        self._must_ask(input)

        async def run(value: Any) -> GivenAnswer:
            handler = _ChainDocuments(run_manager.run_id)
            inner = handler.inner_config(config, run_manager.get_child())
            with streaming_suppressed():
                output = await chain.ainvoke(value, inner, **kwargs)
            return _given(output, _answer(output), _context(output, handler), question_in(input))

        async def again(words: str) -> GivenAnswer:
            return await run(with_words(input, words))

        return self._with_report(await self._gate.aact(await run(input), _with_text, again))

    def _must_ask(self, input: Any) -> None:
        if self._gate.policy.ask_again_on is not None and with_words(input, "") is None:
            names = ", ".join((*QUESTIONS, "messages"))
            raise RequestError(
                f"ask-again needs a question in the chain's input, which is {input!r:.60}; give a "
                f"text, messages, or a dict with one of {names}"
            )

    def _read(self, input: Any) -> GivenAnswer:
        """The answer in an input dict."""
        if self._gate.policy.ask_again_on is not None:
            raise RequestError(NO_CHAIN)
        context, question = _read_input(input)
        return _given(input, _answer(input), context, question)

    def _with_report(self, checked: CheckedAnswer) -> Any:
        """An output with its report attached, if its type has a place for it."""
        output = checked.output
        attached = {
            METADATA_KEY: attachment_of(checked.report, self._attach),
            **repair_metadata(checked),
        }
        if isinstance(output, Mapping):
            return {**output, **attached}
        if isinstance(output, BaseMessage):
            metadata = {**output.response_metadata, **attached}
            return output.model_copy(update={"response_metadata": metadata})
        return output


class _ChainDocuments(RunTreeHandler):
    """Collects the documents from the retrievers of one chain call."""

    def __init__(self, run_id: UUID) -> None:
        super().__init__()
        self._root = run_id
        self._runs.start(run_id, None)

    def inner_config(
        self, config: RunnableConfig, callbacks: BaseCallbackManager
    ) -> RunnableConfig:
        """Config for the inner chain: adds this handler, removes handlers that stream."""
        quiet = without_streaming(callbacks)
        assert isinstance(quiet, BaseCallbackManager)
        quiet.add_handler(self, inherit=True)
        return patch_config(config, callbacks=quiet)

    def facts(self) -> list[Fact] | None:
        """The documents as facts; None if no retriever ran."""
        leaf = uuid4()
        self._runs.start(leaf, self._root)
        retrieved = self._runs.context_of(leaf)
        if retrieved is None:
            return None
        return facts_of([document for result in retrieved for document in result.documents])[0]


def _context(output: Any, handler: _ChainDocuments) -> Context:
    """The context that a chain's output is checked against."""
    facts = handler.facts()
    if isinstance(output, Mapping) and CONTEXT in output:
        return context_of(output[CONTEXT])
    if facts is None:
        raise SafetyHalt(
            "an answer was withheld: it could not be checked, since no retriever ran in the chain "
            "and its output has no context",
            reason=HaltReason.OVERSIGHT.value,
            directive="CRPGate.around",
            value="no context",
        )
    return facts


def _read_input(input: Any) -> tuple[Context, str]:
    """Context and question of an input dict that contains an answer."""
    if not isinstance(input, Mapping):
        raise RequestError(
            f"a gate takes a dict with answer and context, not {type(input).__name__}; "
            "CRPGate.around(chain) takes a chain as it is"
        )
    if CONTEXT not in input:
        raise RequestError("the input has no context; give the documents, or [] for none")
    return context_of(input[CONTEXT]), question_in(input)


def _given(output: Any, answer: Any, context: Any, question: Any) -> GivenAnswer:
    """Checked arguments of an examination."""
    if not isinstance(question, str):
        raise RequestError(f"question is {type(question).__name__}, wanted a text")
    return GivenAnswer(output, text_of(answer), context_of(context), question)


def _with_text(output: Any, repair: Repair) -> Any:
    """A chain's output with a repaired text; None if its form permits none."""
    if isinstance(output, BaseMessage):
        # A tool call without text, and an object parsed from it, other code has read already.
        bound = output.additional_kwargs.get("parsed") is not None or not str(output.text)
        content = None if bound else repaired_content(output, repair.text, repair.edits)
        return content and output.model_copy(update={"content": content})
    key = next((name for name in ANSWERS if name in output), None) if _is_dict(output) else None
    if key is not None:
        answer = _with_text(output[key], repair)
        return None if answer is None else {**output, key: answer}
    raw = _is_dict(output) and output.keys() >= _RAW_KEYS
    return None if raw else with_repaired_text(output, repair)


def _is_dict(output: Any) -> bool:
    return isinstance(output, Mapping)


def with_words(input: Any, words: str) -> Any:
    """A chain's input with words after its question; None if its form permits none."""
    if isinstance(input, str):
        return f"{input}\n\n{words}"
    if isinstance(input, Mapping):
        name = next((name for name in (*QUESTIONS, "messages") if input.get(name)), None)
        changed = None if name is None else with_words(input[name], words)
        return None if changed is None else {**input, name: changed}
    if isinstance(input, BaseMessage):
        return [input, HumanMessage(words)]
    if isinstance(input, Sequence) and question_in(input):
        return [*input, HumanMessage(words)]
    return None


def _answer(output: Any) -> str:
    """The text of a chain's output."""
    if not isinstance(output, Mapping):
        return text_of(output)
    key = next((name for name in ANSWERS if name in output), None)
    if key is not None:
        return text_of(output[key])
    if output.keys() >= _RAW_KEYS:
        # Output of `with_structured_output(…, include_raw=True)`.
        parsed = output["parsed"]
        return text_of(output["raw"] if parsed is None else parsed)
    if CONTEXT in output or not output:
        raise RequestError(f"a dict has no answer; wanted one of {', '.join(ANSWERS)}")
    return text_of(dict(output))


def output_chunks(output: Any) -> Iterator[Any]:
    """An output as a stream of pieces of its answer; their sum is the output."""
    if isinstance(output, str):
        yield from text_pieces(output) or [output]
    elif isinstance(output, AIMessage):
        yield from message_chunks(output)
    elif isinstance(output, Mapping):
        last = {name: output[name] for name in (*ANSWERS, METADATA_KEY) if name in output}
        yield AddableDict({name: value for name, value in output.items() if name not in last})
        for name, value in last.items():
            for piece in output_chunks(value) if _in_pieces(name, value) else (value,):
                yield AddableDict({name: piece})
    else:
        yield output


def _in_pieces(name: str, value: Any) -> bool:
    """Whether a value of an output is an answer that a stream yields in pieces."""
    return name in ANSWERS and isinstance(value, str | AIMessage)


async def _single_input(input: Any) -> AsyncIterator[Any]:
    yield input


def context_of(context: Any) -> Context:
    """Convert a context in any accepted form to an envelope, facts or texts."""
    if isinstance(context, Envelope):
        return context
    if isinstance(context, str):
        return [context] if context.strip() else []
    if isinstance(context, Document | Fact):
        context = [context]
    if not isinstance(context, Sequence):
        raise RequestError(
            f"context is {type(context).__name__}, wanted documents, texts, envelope"
        )
    items: list[Fact | str] = []
    documents = [item for item in context if isinstance(item, Document)]
    if len(documents) == len(context):
        return facts_of(documents)[0]
    for number, item in enumerate(context, 1):
        if not isinstance(item, Fact | str):
            raise RequestError(
                f"context {number} is {type(item).__name__}; wanted documents alone, or texts"
            )
        items.append(item)
    return items


def question_in(input: Any) -> str:
    """The question in a chain's input; empty if none is found."""
    if isinstance(input, str):
        return input
    if isinstance(input, BaseMessage):
        return str(input.text)
    if isinstance(input, Mapping):
        named = next((input[name] for name in QUESTIONS if input.get(name)), None)
        return question_in(named if named is not None else input.get("messages"))
    if isinstance(input, Sequence) and input:
        if any(isinstance(item, str) for item in input):
            # A chain's list of texts need not contain a question.
            return ""
        try:
            messages = convert_to_messages(input)
        except (ValueError, NotImplementedError, KeyError, TypeError):
            return ""
        people = [message for message in messages if message.type == "human"]
        return str(people[-1].text) if people else ""
    return ""


def text_of(answer: Any) -> str:
    """The text of an answer; JSON for a structured answer, including one given as a tool call."""
    if isinstance(answer, BaseMessage):
        return str(answer.text) or structured_text(answer)
    if isinstance(answer, Generation):
        return answer.text
    return answer_text(answer)
