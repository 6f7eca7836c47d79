"""A gate around an existing query engine: its answers are shown, repaired or withheld."""

from __future__ import annotations

from typing import Any, Unpack

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import QueryBundle

from crp_integrations.adapters.answer_gate import (
    AnswerGate,
    CheckedAnswer,
    GivenAnswer,
    OnFlag,
    Reviewer,
    repair_metadata,
    with_repaired_text,
)
from crp_integrations.adapters.evidence import facts_of
from crp_integrations.adapters.observed_answers import Attach, attachment_of, check_attach
from crp_integrations.dpe.repair import Repair
from crp_integrations.errors import RequestError
from crp_integrations.llama_index.nodes import METADATA_KEY, offers
from crp_integrations.llama_index.span_tree import current_span
from crp_integrations.llama_index.spans import ReportEvent, agent_position, attach_metadata
from crp_integrations.relay.defaults import EmbedderSource
from crp_integrations.relay.evidence import answer_text
from crp_integrations.relay.judge import JudgeOptions, JudgeSource
from crp_integrations.relay.settings import Settings
from crp_integrations.vocabulary.context import GroundingMode
from crp_integrations.vocabulary.safety import FlagAction

dispatcher = get_dispatcher(__name__)


class CRPGate(BaseQueryEngine):
    """Examines the answers of a query engine against their source nodes, and acts on flagged ones.

    The response has a summary of the report as `crp` in its metadata, and `crp_repaired` with the
    original and the edits if it was repaired. A withheld answer raises `SafetyHalt`. A stream is
    read to its end first, and the response is a whole one.

    Spec: CRP-SPEC-005 §1.2; related facts §6

    Args:
        engine: any query engine whose responses have source nodes.
        policy, grounding, reviewer, embedder, settings: as in `crp_integrations.langchain.CRPGate`.
        attach: how much of the report is attached: `full`, `summary` (at most 700 bytes), `id`.
        on_flag, on_flag_level, most_again: what is done with a flagged answer before the policy
            decides, as in `Relay.ask`; `ask-again` asks the engine again.
        judge, judge_options: as in `examine`; the policy uses the judge's level. `on_report` is
            called with each answer's `Report`, also if the answer is withheld.

    Raises:
        PolicySyntaxError: the policy does not follow its grammar.
        RequestError: an argument has no usable value, or the judge is True.
        ConfigError: a component has the wrong type, or there is nothing that can check what the
            policy demands.
    """

    def __init__(
        self,
        engine: BaseQueryEngine,
        policy: str = "halt-on HIGH",
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        reviewer: Reviewer | None = None,
        embedder: EmbedderSource | None = None,
        settings: Settings | None = None,
        attach: Attach = "summary",
        on_flag: OnFlag = FlagAction.REPORT,
        on_flag_level: str | None = None,
        most_again: int = 1,
        callback_manager: CallbackManager | None = None,
        judge: JudgeSource = None,
        **judge_options: Unpack[JudgeOptions],
    ) -> None:
        if not isinstance(engine, BaseQueryEngine):
            raise RequestError(
                f"CRPGate takes a query engine, such as index.as_query_engine(), not "
                f"{type(engine).__name__}"
            )
        super().__init__(callback_manager or engine.callback_manager)
        check_attach(attach)
        self._engine = engine
        self._attach = attach
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

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"engine": self._engine}

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        def ask(question: QueryBundle) -> GivenAnswer:
            response = self._engine.query(question)
            if isinstance(response, StreamingResponse):
                response = response.get_response()
            return _given(response, query_bundle)

        return self._shown(
            self._gate.act(
                ask(query_bundle), _with_text, lambda words: ask(_with_words(query_bundle, words))
            )
        )

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        async def ask(question: QueryBundle) -> GivenAnswer:
            response = await self._engine.aquery(question)
            if isinstance(response, AsyncStreamingResponse):
                response = await response.get_response()
            elif isinstance(response, StreamingResponse):
                response = response.get_response()
            return _given(response, query_bundle)

        return self._shown(
            await self._gate.aact(
                await ask(query_bundle),
                _with_text,
                lambda words: ask(_with_words(query_bundle, words)),
            )
        )

    def _shown(self, checked: CheckedAnswer) -> RESPONSE_TYPE:
        response: RESPONSE_TYPE = checked.output
        report = attachment_of(checked.report, self._attach)
        attach_metadata(response, {METADATA_KEY: report, **repair_metadata(checked)})
        agent = agent_position(current_span()).as_json()
        dispatcher.event(ReportEvent(report=checked.report.model_dump(mode="json"), agent=agent))
        return response


def _given(response: Any, question: QueryBundle) -> GivenAnswer:
    facts, _ = facts_of(offers(response.source_nodes), noun="node")
    text = answer_text(response.response or "")
    return GivenAnswer(response, text, facts, question.query_str)


def _with_text(response: Any, repair: Repair) -> Any:
    """The response with a repaired text; None if its type does not accept it."""
    answer = with_repaired_text(response.response, repair)
    if answer is None:
        return None
    nodes, metadata = response.source_nodes, response.metadata
    kind = type(response) if not isinstance(answer, str) else Response
    return kind(response=answer, source_nodes=nodes, metadata=metadata)


def _with_words(question: QueryBundle, words: str) -> QueryBundle:
    # The retriever still searches for the question alone.
    searched = question.embedding_strs
    return QueryBundle(f"{question.query_str}\n\n{words}", custom_embedding_strs=searched)
