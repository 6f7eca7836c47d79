"""Builds the unsigned draft of a receipt from the values of one window.

Values come from validated records and are not validated again; `predicate.Content` reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from crp_integrations.dpe.dossier import Dossier
from crp_integrations.envelope.budget import EnvelopeInputs
from crp_integrations.envelope.near_duplicates import PairRelation, as_pairs
from crp_integrations.envelope.prompt import BETWEEN, CONTEXT_CLOSE, CONTEXT_OPEN, system_parts
from crp_integrations.envelope.rank import is_temporal
from crp_integrations.messages import Message
from crp_integrations.policy.policy_text import render_policy
from crp_integrations.policy.records import Policy
from crp_integrations.receipt import outline
from crp_integrations.receipt.leaves import (
    COMMUNITIES,
    Part,
    TextLeaves,
    as_json,
    quoted,
    rendered,
    texts_as_json,
)
from crp_integrations.receipt.outline import declared
from crp_integrations.receipt.predicate import (
    SCHEMA,
    BudgetRecord,
    FitRecord,
    ModelsRecord,
    PolicyRecord,
    RequestRecord,
    SelectionRecord,
    TermsRecord,
    Tokenizer,
)
from crp_integrations.receipt.records import Draft
from crp_integrations.receipt.window_values import (
    Asked,
    WindowValues,
    disclosed,
    examination_content,
    repair_content,
)
from crp_integrations.scores import SCALE
from crp_integrations.seals import iso, sha256


# Cached because most windows of a process share a few policies.
@lru_cache(maxsize=64)
def _text_and_hash(policy: Policy) -> tuple[str, str]:
    """A policy's canonical text and its hash."""
    text = render_policy(policy)
    return text, sha256(text)


def policy_content(window: WindowValues) -> dict[str, Any]:
    """The policies in force and their judgements."""
    decided = window.decided
    text, digest = _text_and_hash(decided.policy)
    return declared(
        PolicyRecord,
        decided,
        text=text,
        hash=digest,
        report_only=None if decided.report_only is None else render_policy(decided.report_only),
        judgement=None if decided.judgement is None else outline.plain(decided.judgement),
        reported=None if decided.reported is None else outline.plain(decided.reported),
        catalogue=window.report.classification.engine,
        terms=None if decided.terms is None else declared(TermsRecord, decided.terms),
    )


# Maximum number of candidates for which all near-identical pairs are computed: that is quadratic.
ALL_PAIRS: Final = 300
NAME: Final = "crp-integrations"


def draft(window: WindowValues, version: str) -> Draft:
    """Build the receipt of a window, before it is signed.

    Spec: CRP-SPEC-005 §15.4
    """
    texts = TextLeaves()
    labels = _labels(window.fit)
    candidates = _candidates(window.fit, labels, texts)
    # Parts of each passage of a context that was not packed from an envelope.
    shown: list[tuple[Part, ...]] = []
    packed: tuple[Part, ...] = ()
    envelope = None
    if window.envelope is not None and window.fit is not None:
        facts = window.fit.candidates.facts
        places = {fact.fact_id: n for n, fact in enumerate(facts)}
        envelope = outline.envelope(window.envelope, places, labels)
        context = packed = texts.rendered(window.envelope)
    else:
        if window.examined is not None:
            shown = _seen(window.examined.dossier, texts)
            packed = rendered(shown[: len(window.examined.dossier.numbered_passages)])
        context = rendered(shown)
    texts.of = tuple(sorted(quoted(context)))
    text = window.envelope.text if window.envelope else texts.composed(context)
    texts.add("context", text, of=texts.of, parts=context)
    question = texts.add("request", window.asked.query)
    request = request_content(window.asked, texts, question, window)
    calls = calls_content(window, texts, question, packed)
    answer = texts.add("answer", window.text, of=texts.of, follows=True)
    examined = (
        examination_content(window, window.examined, texts, question, shown, answer)
        if window.examined
        else None
    )
    repaired = (
        repair_content(window, window.original, texts, question, shown) if window.original else None
    )
    needs = window.examined.dossier.sub_queries if window.examined else ()
    seal = texts.add("seal", texts_as_json(dict(window.state)), of=range(len(texts.leaves)))
    # After the seal, so that it stays when one of them is left out.
    records = [examined, repaired and repaired["examined"]]
    runs = [record["judged"] for record in records if record and record["judged"]]
    if window.judge_prompt and any(run["calls"] for run in runs):
        leaf = texts.add("judge-prompt", window.judge_prompt)
        for run in runs:
            run["system"] = leaf if run["calls"] else None
    asker = texts.add("asker", texts_as_json(dict(window.asker))) if window.asker else None
    fit = window.fit
    content = {
        "candidates": candidates,
        "envelope": envelope,
        "examined": examined,
        "report": outline.report(window.report, needs),
        "settings": disclosed(window.settings),
        "schema": SCHEMA,
        "scale": SCALE,
        "package": {"name": NAME, "version": version},
        "request": request,
        "model": declared(
            ModelsRecord,
            window,
            asked=fit.model if fit else next((call.model for call in window.calls), ""),
            answered=window.answered_by,
            tokenizer=declared(Tokenizer, fit, identity=fit.tokenizer) if fit else None,
        ),
        "selected": None if fit is None else _selected(fit),
        "fit": None if fit is None else _fit(fit),
        "calls": calls,
        "policy": policy_content(window),
        "asker": asker,
        "documents": _documents(window, texts),
        "seal": seal,
    }
    if repaired:
        content["repaired"] = repaired
    return Draft(content, tuple(texts.leaves))


def _documents(window: WindowValues, texts: TextLeaves) -> list[dict[str, Any]]:
    """The documents of what was shown; each leaf goes with the facts of its document."""
    packed = window.envelope.facts if window.envelope else ()
    source_of = {**window.sources, **{fact.fact_id: fact.source_id for fact in packed}}
    return [
        {
            "source": entry.source_id,
            "leaf": texts.add(
                f"document/{entry.source_id}",
                texts_as_json(
                    {"hash": entry.document_hash, "title": entry.title, "uri": entry.uri}
                ),
                of=sorted(
                    number
                    for number, leaf in enumerate(texts.leaves)
                    if leaf.fact_id and source_of.get(leaf.fact_id) == entry.source_id
                ),
            ),
        }
        for entry in window.documents
    ]


def _seen(dossier: Dossier, texts: TextLeaves) -> list[tuple[Part, ...]]:
    """Parts of the passages of a context that was made outside this package.

    A last passage without a number is the system prompt, which may contain or quote the facts.
    """
    facts = dossier.numbered_passages
    shown: list[tuple[Part, ...]] = [(texts.fact(name, text),) for name, text in facts]
    if len(facts) == len(dossier.passages):
        return shown
    name, text = f"evidence/{len(dossier.passages)}", dossier.passages[-1][1]
    parts = rendered(shown)
    texts.of = tuple(sorted(quoted(parts)))
    packed = texts.composed(parts)
    if packed and packed in text:
        before, _, after = text.partition(packed)
        return [*shown, tuple(_around(before, after, texts, name, parts))]
    return [*shown, (texts.add(name, text, of=texts.of, follows=True),)]


def _selected(fit: EnvelopeInputs) -> dict[str, Any]:
    chosen = fit.candidates
    every = len(chosen.facts) <= ALL_PAIRS
    return declared(
        SelectionRecord,
        chosen,
        duplicates=_pairs(as_pairs(chosen.duplicates), every=every),
        conflicts=_pairs(as_pairs(chosen.conflicts), every=every),
        all_pairs=every,
    )


def _pairs(pairs: PairRelation, *, every: bool) -> list[list[int]]:
    return [list(pair) for pair in (pairs if every else pairs.asked())]


def _labels(fit: EnvelopeInputs | None) -> dict[str, int]:
    """Number the community labels, since a label contains words of its facts."""
    labels = (fact.community for fact in fit.candidates.facts) if fit else ()
    numbers = {label: number for number, label in enumerate(dict.fromkeys(filter(None, labels)))}
    # An unnamed community gets a number too; it has no label to record.
    return {**numbers, "": outline.NAMELESS}


def _candidates(
    fit: EnvelopeInputs | None, labels: Mapping[str, int], texts: TextLeaves
) -> list[dict[str, Any]]:
    if fit is None:
        return []
    facts = fit.candidates.facts
    # Facts of one ingestion share their time.
    times: dict[Any, str] = {
        time: iso(time) for time in {fact.ingested_at for fact in facts} if time
    }
    candidates = []
    for fact in facts:
        content: dict[str, Any] = {
            "characters": len(fact.content),
            "id": fact.fact_id,
            "importance": fact.importance,
            "leaf": texts.fact(fact.fact_id, fact.content, fact.source_id),
            "relevance": fact.relevance,
            "source": fact.source_id,
            "tokens": fact.tokens,
        }
        # Fields that most candidates lack are left out to keep the receipt small.
        if fact.score is not None:
            content["score"] = fact.score
        if fact.ingested_at is not None:
            content["ingested_at"] = times[fact.ingested_at]
        if fact.community is not None:
            content["community"] = labels[fact.community]
        for name in ("lexical", "hop", "stale", "decision"):
            if value := getattr(fact, name):
                content[name] = value
        for name in ("stretches", "passages"):
            if value := getattr(fact, name):
                content[name] = [*chain.from_iterable(value)]
        if fact.spans:
            content["spans"] = [list(span) for span in fact.spans]
        if fact.decay is not None:
            content["decay"] = fact.decay
        if fact.refused is not None:
            content["refused"] = fact.refused.value
        candidates.append(content)
    named = [label for label in labels if label]
    if named:
        texts.add(COMMUNITIES, texts_as_json(named), of=range(len(texts.leaves)))
    return candidates


def _fit(fit: EnvelopeInputs) -> dict[str, Any]:
    return declared(
        FitRecord,
        fit,
        now=iso(fit.now),
        room=None if fit.room is None else declared(BudgetRecord, fit.room),
        temporal=is_temporal(fit.candidates.query, fit.now),
        pinned=list(fit.pinned),
        previous=list(fit.previous),
    )


def request_content(
    asked: Asked, texts: TextLeaves, question: int, window: WindowValues
) -> dict[str, Any]:
    """The request; adds a leaf for each of its texts."""
    needs: tuple[str, ...] = ()
    if window.envelope is not None and window.envelope.sub_queries != (asked.query,):
        needs = window.envelope.sub_queries
    tools = [dict(tool) for tool in asked.tools]
    return declared(
        RequestRecord,
        asked,
        question=question,
        needs=[texts.add(f"need/{n}", need) for n, need in enumerate(needs, start=1)],
        system_prompt=texts.add("system-prompt", asked.system_prompt)
        if asked.system_prompt
        else None,
        instructions=[
            # The instruction of a remedy quotes claims of the previous answer.
            texts.add(f"instruction/{n}", words, of=texts.of, follows=True)
            for n, words in enumerate(asked.instructions, start=1)
        ],
        history=[
            _message(message, texts, f"history/{n}")
            for n, message in enumerate(asked.history, start=1)
        ],
        tools=texts.add("tools", as_json(tools)) if tools else None,
        temperature=None if asked.temperature is None else repr(asked.temperature),
        # As text, since providers accept seeds above 2^53.
        seed=None if asked.seed is None else str(asked.seed),
    )


def _message(
    message: Message,
    texts: TextLeaves,
    name: str,
    parts: Sequence[Part] = (),
    leaf: int | None = None,
) -> dict[str, Any]:
    if leaf is None:
        leaf = texts.add(name, message.content, of=texts.of, follows=not parts, parts=parts)
    content: dict[str, Any] = {"role": str(message.role), "leaf": leaf}
    frame = {
        "name": message.name,
        "tool_call_id": message.tool_call_id,
        "failed": message.failed or None,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in message.tool_calls
        ]
        or None,
    }
    frame = {name: value for name, value in frame.items() if value is not None}
    if frame:
        content["frame"] = texts.add(f"{name}/frame", as_json(frame), of=texts.of, follows=True)
    return content


def calls_content(
    window: WindowValues, texts: TextLeaves, question: int, parts: Sequence[Part]
) -> list[dict[str, Any]]:
    """The calls for the answer; messages that a later call repeats are recorded once."""
    calls = []
    first: tuple[Message, ...] = ()
    earlier: dict[Message, int] = {}
    for place, message in enumerate(window.asked.history, start=1):
        earlier.setdefault(message, place)
    for number, call in enumerate(window.calls):
        follows = number > 0 and call.messages[: len(first)] == first
        own = call.messages[len(first) :] if follows else call.messages
        sent = [
            _sent(message, texts, f"call/{number + 1}/{at}", window, earlier, question, parts)
            for at, message in enumerate(own, start=1)
        ]
        calls.append(
            {
                "purpose": str(call.purpose),
                "model": call.model,
                "follows": follows,
                "messages": sent,
            }
        )
        first = first or call.messages
    return calls


def _sent(
    message: Message,
    texts: TextLeaves,
    name: str,
    window: WindowValues,
    earlier: Mapping[Message, int],
    question: int,
    parts: Sequence[Part],
) -> dict[str, Any]:
    """A message as it was sent, referring to the leaves of the question, history and context."""
    if message.role == "user" and message.content == window.asked.query:
        return _message(message, texts, name, leaf=question)
    if place := earlier.get(message):
        return _message(message, texts, name, leaf=texts.number(f"history/{place}"))
    if message.role == "system" and window.asked.shaped:
        return _message(message, texts, name, _system(window.asked, texts, parts))
    rendered_text = texts.composed(parts)
    if not rendered_text or rendered_text not in message.content:
        return _message(message, texts, name)
    before, _, after = message.content.partition(rendered_text)
    return _message(message, texts, name, _around(before, after, texts, name, parts))


def _system(asked: Asked, texts: TextLeaves, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The system message of `prompt@1` as parts, with the caller's own texts as leaves."""
    own, rules, strategy, *_ = system_parts(asked.system_prompt, asked.grounding, asked.strategy)
    pieces: list[tuple[Part, ...]] = []
    if own:
        pieces.append((texts.number("system-prompt"),))
    pieces += [(words,) for words in (rules, strategy) if words]
    for number, words in enumerate(asked.instructions, start=1):
        if words:
            pieces.append((texts.number(f"instruction/{number}"),))
    if parts:
        pieces.append((CONTEXT_OPEN, *parts, CONTEXT_CLOSE))
    joined: list[Part] = []
    for piece in pieces:
        joined += (BETWEEN, *piece) if joined else piece
    return tuple(joined)


def _around(
    before: str, after: str, texts: TextLeaves, name: str, parts: Sequence[Part]
) -> list[Part]:
    """The text of a caller's message before and after the context, with the context, as parts."""
    pieces: list[Part] = list(parts)
    if before:
        pieces.insert(0, texts.add(f"{name}/before", before, of=texts.of, follows=True))
    if after:
        pieces.append(texts.add(f"{name}/after", after, of=texts.of, follows=True))
    return pieces
