"""A callback that examines every answer against the documents that its own chain retrieved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from crp_integrations.errors import RequestError
from crp_integrations.fabric.records import Fact
from crp_integrations.langchain.ancestry import Ancestry, Retrieved
from crp_integrations.langchain.documents import METADATA_KEY, facts_of
from crp_integrations.relay.doors import examine
from crp_integrations.vocabulary import Checked, GroundingMode

log = logging.getLogger("crp_integrations.langchain")

Attachment = dict[str, Any]


class DPECallbackHandler(BaseCallbackHandler):
    """Records and attaches; it never blocks an answer.

    Spec: CRP-SPEC-005 §2

    The report stands as plain JSON in `response_metadata["crp"]` of each answer's message (in
    `generation_info["crp"]` for models that return strings). A call whose chain retrieved
    nothing, or whose examination failed, gets `{"checked": "NOT_CHECKED", "reason": …}`
    instead, never a clean report. In `stream()` the pieces are out before a callback sees the
    end: use `on_report` there.

    Args:
        grounding: how far the chain's prompt lets the model go beyond the context.
        on_report: called with what was attached, once for each answer.

    Raises:
        RequestError: the grounding mode is not one of the three.
    """

    def __init__(
        self,
        *,
        grounding: GroundingMode | str = GroundingMode.PREFERRED,
        on_report: Callable[[Attachment], None] | None = None,
    ) -> None:
        if grounding not in tuple(GroundingMode):
            wanted = ", ".join(GroundingMode)
            raise RequestError(f"grounding {grounding!r:.40} is not one of {wanted}")
        self._grounding = GroundingMode(grounding)
        self._on_report = on_report
        self._runs = Ancestry()

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run's parent."""
        self._runs.start(run_id, parent_run_id)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run's parent."""
        self._runs.start(run_id, parent_run_id)

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run's parent."""
        self._runs.start(run_id, parent_run_id)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run's parent."""
        self._runs.start(run_id, parent_run_id)

    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run's parent and what was asked."""
        self._runs.start(run_id, parent_run_id, query=query)

    def on_retriever_end(
        self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Shelve the documents for the model calls that descend from the same runs."""
        self._runs.retrieved(run_id, documents)
        self._runs.end(run_id)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Examine each answer and attach the report."""
        context = self._runs.context_of(run_id)
        attached: list[Attachment] = []
        try:
            for generations in response.generations:
                for generation in generations:
                    if isinstance(generation, Generation) and generation.text:
                        attached.append(self._examined(generation.text, context))
                        _attach(generation, attached[-1])
            # Only now, so that a hook that raises leaves no answer without its report.
            if self._on_report is not None:
                for attachment in attached:
                    self._on_report(attachment)
        finally:
            self._runs.end(run_id)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root ends."""
        self._runs.end(run_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root ends."""
        self._runs.end(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root fails."""
        self._runs.end(run_id)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root fails."""
        self._runs.end(run_id)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root fails."""
        self._runs.end(run_id)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the tree when its root fails."""
        self._runs.end(run_id)

    def _examined(self, answer: str, context: tuple[Retrieved, ...] | None) -> Attachment:
        if context is None:
            return _not_checked("no retriever ran in the chain of this call")
        documents = [document for retrieved in context for document in retrieved.documents]
        try:
            facts: list[Fact] = facts_of(documents)[0]
            report = examine(
                answer,
                context=facts,
                question=next(iter(context)).query,
                grounding=self._grounding,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it becomes NOT_CHECKED
            # LangChain would swallow it; the answer must say that it was not checked. The
            # error's own words may quote a text, which no log may hold.
            log.error("the examination of an answer failed with %s", type(error).__name__)
            return _not_checked(f"the examination failed with {type(error).__name__}")
        return report.model_dump(mode="json")


def _attach(generation: Generation, attachment: Attachment) -> None:
    # A new dict each time: answers out of a cache share theirs with the answers before them.
    if isinstance(generation, ChatGeneration):
        message = generation.message
        message.response_metadata = {**message.response_metadata, METADATA_KEY: attachment}
    else:
        generation.generation_info = {
            **(generation.generation_info or {}),
            METADATA_KEY: attachment,
        }


def _not_checked(reason: str) -> Attachment:
    return {"checked": Checked.NOT_CHECKED.value, "reason": reason}
