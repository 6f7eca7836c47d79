"""First half of a replay, with integers and texts only: budget, selection, context and prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from crp_integrations.envelope.assemble import assemble
from crp_integrations.envelope.budget import RecordedCounter
from crp_integrations.envelope.budget import budget as tokens_left
from crp_integrations.envelope.candidates import Candidates
from crp_integrations.envelope.layout import PreviousEnvelope, reusable_prefix
from crp_integrations.envelope.passages import EXCERPT
from crp_integrations.envelope.prompt import build_messages, marker_text, system_parts
from crp_integrations.envelope.records import Envelope
from crp_integrations.envelope.settings import EnvelopeSettings
from crp_integrations.errors import CRPError, EngineError, ReceiptBroken
from crp_integrations.messages import Message
from crp_integrations.ports import TokenCounter
from crp_integrations.receipt import outline
from crp_integrations.receipt.leaves import rendered
from crp_integrations.receipt.predicate import Content, FitRecord, Tokenizer
from crp_integrations.receipt.reconstruction import (
    Texts,
    candidates_of,
    label_of,
    message_of,
    moment,
)
from crp_integrations.receipt.replay_records import (
    Difference,
    Differs,
    NotRun,
    Outcome,
    ReplayTools,
    first,
    in_text,
    recorded_settings,
)
from crp_integrations.vocabulary import Purpose

_DECOMPOSED = "decompose"
# Replaces the session's secret, which no receipt contains.
_SECRET = "secret"


@dataclass(frozen=True)
class ReplayedContext:
    """A receipt's envelope, built again on first use.

    Attributes:
        recorded: the envelope as it was signed.
    """

    recorded: Mapping[str, Any]
    content: Content
    texts: Texts
    tools: ReplayTools

    @cached_property
    def seam(self) -> tuple[Candidates, tuple[str, ...]]:
        """The candidates, and the ids of those whose text was left out."""
        return candidates_of(self.content, self.texts)

    @property
    def fit(self) -> FitRecord:
        """The parameters with which the envelope was built."""
        if self.content.fit is None:
            raise NotRun("the envelope was made elsewhere, or there was none")
        return self.content.fit

    @property
    def automatic(self) -> bool:
        """Whether the budget was chosen by what the question needs."""
        return self.fit.room is not None and self.fit.room.automatic

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that counted the tokens."""
        if self.content.model.tokenizer is None:
            raise ReceiptBroken("content.model.tokenizer", "is missing")
        return self.content.model.tokenizer

    @cached_property
    def settings(self) -> EnvelopeSettings:
        """The settings in force."""
        return self.tools.envelope or recorded_settings(EnvelopeSettings, self.content)

    def assembled(
        self,
        candidates: Candidates,
        counter: TokenCounter,
        *,
        budget_tokens: int,
        automatic: bool,
        salt: str = "",
    ) -> Envelope:
        """Pack candidates into an envelope, with all other inputs as recorded."""
        fit, request = self.fit, self.content.request
        return assemble(
            candidates,
            budget_tokens=budget_tokens,
            automatic=automatic,
            counter=counter,
            grounding=request.grounding,
            settings=self.settings,
            now=moment(fit.now, "content.fit.now"),
            k=fit.k,
            model=self.content.model.asked,
            window_number=fit.window_number,
            strategy=request.strategy,
            max_age_seconds=fit.max_age_seconds,
            tiers_before=fit.tiers_before,
            pinned=fit.pinned,
            previous=PreviousEnvelope(fit.previous),
            salt=salt,
        )

    @cached_property
    def envelope(self) -> Envelope:
        """The envelope, built again with the recorded token counts."""
        fit, tokenizer = self.fit, self.tokenizer
        counter = RecordedCounter(
            fit.counts,
            identity=tokenizer.identity,
            exactness=tokenizer.exactness,
            source=tokenizer.source,
        )
        candidates, _ = self.seam
        try:
            made = self.assembled(
                candidates,
                counter,
                budget_tokens=fit.budget_tokens,
                automatic=self.automatic,
                salt=_SECRET if fit.salted else "",
            )
        except EngineError as error:
            raise Differs(Difference("fit.counts", str(error))) from None
        except ReceiptBroken:
            raise
        except CRPError as error:
            raise ReceiptBroken("content.fit", str(error)) from None
        recorded_envelope = self.content.envelope
        if recorded_envelope is not None and recorded_envelope.prefix_characters:
            # The previous context begins with this prefix; it must end after a whole fact here too.
            prefix = made.text[: recorded_envelope.prefix_characters]
            whole = reusable_prefix([fact.content for fact in made.facts], prefix) == prefix
            made = made.model_copy(
                update={
                    "prefix_characters": len(prefix) if whole else 0,
                    "prefix_tokens": max(0, counter.count(prefix)) if counter.left else 0,
                }
            )
        if counter.left:
            asked = len(fit.counts) - counter.left
            raise Differs(Difference("fit.counts", f"{len(fit.counts)}", f"{asked}"))
        return made


def budget(made: ReplayedContext) -> Outcome:
    """Compute the budget from the model's limit and the tokens around the context (§7.2)."""
    fit, room = made.fit, made.fit.room
    if room is None:
        raise NotRun("the budget was given by the caller")
    tokens = tokens_left(
        room.limit,
        room.around,
        room.question,
        room.answer,
        made.tokenizer.exactness,
        made.settings,
        asked=room.asked,
        automatic=room.automatic,
    )
    return first(fit.budget_tokens, tokens, "fit.budget_tokens"), ""


def selection(made: ReplayedContext) -> Outcome:
    """Repeat ranking, packing, order and tier; compare ids, scores and reasons."""
    recorded_envelope = made.content.envelope
    if recorded_envelope is None:
        raise NotRun("there was no envelope")
    envelope = made.envelope
    candidates, hidden = made.seam
    places = {fact.fact_id: place for place, fact in enumerate(candidates.facts)}
    recorded = dict(made.recorded)
    numbers = {
        candidate.community
        for candidate in made.content.candidates
        if candidate.community is not None
    }
    labels = {label_of(number): number for number in numbers}
    replayed: dict[str, Any] = outline.envelope(envelope, places, labels)
    # The record begins with the algorithm that split the question; a replay does not split it.
    names = recorded["algorithms"]
    if names and names[0].startswith(_DECOMPOSED):
        recorded["algorithms"] = names[1:]
    remark = ""
    if made.fit.salted:
        recorded["etag"] = replayed["etag"] = ""
        remark = "the ETag depends on a secret of the session and is not compared"
    difference = first(recorded, replayed, "envelope")
    if difference and hidden and EXCERPT in (*recorded["algorithms"], *replayed["algorithms"]):
        # Excerpts skip words that the context already contains, which needs the texts.
        raise NotRun("which parts of facts are shown depends on texts that are not in this copy")
    return difference, remark


def context(made: ReplayedContext) -> Outcome:
    """Render the context again and compare it byte for byte."""
    if made.content.envelope is None:
        examined = made.content.examined
        passages = examined.passages or () if examined else ()
        text = made.texts.pieces(rendered([passage.pieces for passage in passages]))
        return in_text(made.texts.named("context"), text, "context"), ""
    envelope, hidden = made.envelope, set(made.seam[1])
    shown = [fact.fact_id for fact in envelope.facts if fact.fact_id in hidden]
    if shown:
        raise NotRun(f"the text of fact {shown[0]} is not in this copy")
    return in_text(made.texts.named("context"), envelope.text, "context"), ""


def prompt(made: ReplayedContext) -> Outcome:
    """Build the first call's messages again and compare them byte for byte."""
    content, texts = made.content, made.texts
    if not content.calls:
        raise NotRun("no model was asked")
    first_call = content.calls[0]
    difference = first(content.model.asked, first_call.model, "calls[0].model")
    difference = difference or first(first_call.purpose, Purpose.ANSWER.value, "calls[0].purpose")
    if difference is None and content.fit is not None:
        # Code that fits an envelope also builds the messages around it.
        difference = first(content.request.shaped, True, "request.shaped")
    if difference is not None:
        return difference, ""
    if not content.request.shaped:
        raise NotRun("the messages are the caller's own")
    sent = [message_of(message, texts) for message in content.calls[0].messages]
    text = made.texts.named("context") if content.fit is None else made.envelope.text
    rendered = messages_of(content, texts, text)
    if len(sent) != len(rendered):
        return first(len(sent), len(rendered), "calls[0].messages"), ""
    for number, (recorded, replayed) in enumerate(zip(sent, rendered, strict=True)):
        if recorded == replayed:
            continue
        place = f"calls[0].messages[{number}]"
        difference = first(_frame(recorded), _frame(replayed), place)
        difference = difference or in_text(recorded.content, replayed.content, place)
        if difference:
            return difference, ""
    return None, ""


def messages_of(content: Content, texts: Texts, context_text: str) -> tuple[Message, ...]:
    """The messages for a context (`prompt@1`)."""
    request = content.request
    parts = system_parts(
        "" if request.system_prompt is None else texts[request.system_prompt],
        request.grounding,
        request.strategy,
        tuple(texts[number] for number in request.instructions),
    )
    history = tuple(message_of(message, texts) for message in request.history)
    return build_messages(parts, context_text, history, texts[request.question], request.results)


def _frame(message: Message) -> dict[str, Any]:
    return message.model_dump(mode="json", exclude={"content"})


def counts(made: ReplayedContext) -> Outcome:
    """Count the tokens of every candidate again, if the tokenizer is available."""
    if made.content.fit is None:
        raise NotRun("the envelope was made elsewhere, or there was none")
    counter, tokenizer = made.tools.counter, made.tokenizer
    if counter is None or counter.identity != tokenizer.identity:
        raise NotRun(f"the tokenizer {tokenizer.identity!r:.80} is not at hand")
    candidates, left_out = made.seam
    hidden = set(left_out)
    seen = [fact for fact in candidates.facts if fact.fact_id not in hidden]
    token_counts = counter.count_many([marker_text(fact.content) for fact in seen])
    for fact, tokens in zip(seen, token_counts, strict=True):
        if fact.tokens != max(0, tokens):
            place = f"candidates[{fact.fact_id}].tokens"
            return Difference(place, str(fact.tokens), str(tokens)), ""
    recorded_envelope = made.content.envelope
    if recorded_envelope is not None and recorded_envelope.token_count:
        whole = counter.count(made.texts.named("context"))
        return first(recorded_envelope.token_count, whole, "envelope.token_count"), ""
    return None, ""
