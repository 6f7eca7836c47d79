"""Parts of facts: passages of a caller's long texts, and sentences of facts that do not fit whole.

A text of more tokens than an embedder reads at once is cut as the fabric cuts documents, into
passages that are ranked and packed (`passages@1`). The packed passages appear in the envelope
as one fact with the text's id, in the order of the text, with the offsets shown.

Whole facts rarely fill a budget exactly, and a long fact often has just one sentence that
matters. So whole facts fill a share of the budget, and the best stretches of the others the
rest (`excerpt@1`). The fact's text is never altered; an ellipsis separates parts that do not
adjoin. Adjacency depends on offsets alone, so a receipt that omits a text can still be
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from crp_integrations.envelope.candidates import (
    Candidate,
    Candidates,
    RankedFact,
    ScoredPassage,
    ScoredSpan,
    pair_places,
)
from crp_integrations.envelope.near_duplicates import as_pairs
from crp_integrations.envelope.pack import PackResult
from crp_integrations.envelope.prompt import ELLIPSIS, marker_text
from crp_integrations.envelope.rank import Ranking
from crp_integrations.envelope.records import Conflict
from crp_integrations.envelope.settings import HybridSettings
from crp_integrations.fabric.ingest.chunker import cut_blocks
from crp_integrations.fabric.records import Block
from crp_integrations.fabric.settings import ChunkingSettings
from crp_integrations.language.blocks import blocks
from crp_integrations.ports import TokenCounter
from crp_integrations.seals import sha256

PASSAGES = "passages@1"
# Separates the text's id and the number in a passage's id, which is never shown outside.
_ID_SEPARATOR = "\x1f"

Span = tuple[int, int]


def cut_text(
    text: str, tokens: int, counter: TokenCounter, settings: ChunkingSettings
) -> tuple[Span, ...]:
    """Offsets of the passages of a text, in order and without overlap; one for a short text.

    Spec: CRP-SPEC-009 §4.2
    """
    if tokens <= settings.split_above_tokens:
        return ((0, len(text)),)
    paragraphs = _paragraphs(text)
    apart = settings.model_copy(update={"overlap_share": 0.0})
    cut = [
        (chunk.start, chunk.end)
        for chunk in cut_blocks(paragraphs, counter=counter, settings=apart)
    ]
    return tuple(cut) if len(cut) > 1 else ((0, len(text)),)


def _paragraphs(text: str) -> list[Block]:
    """The paragraphs of a text; blocks without an empty line between them form one."""
    spans: list[Span] = []
    for block in blocks(text):
        if spans and text.count("\n", spans[-1][1], block.start) < 2:
            spans[-1] = (spans[-1][0], block.end)
        else:
            spans.append((block.start, block.end))
    return [Block(text=text[start:end], start=start) for start, end in spans]


def passage_id(fact_id: str, number: int) -> str:
    """The id of a passage as a candidate; passages of a text sort by id in text order."""
    return f"{fact_id}{_ID_SEPARATOR}{number:06d}"


@dataclass(frozen=True, slots=True)
class CutTexts:
    """Candidates with each passage of a cut text as a candidate of its own.

    Attributes:
        texts: the candidates as they were selected.
        passages: the candidates with the passages of each cut text instead of the text.
        owners: by the id of a passage, the position of its text and its number in the text.
    """

    texts: Candidates
    passages: Candidates
    owners: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, texts: Candidates) -> CutTexts:
        """Split candidates into their passages."""
        if not any(fact.passages for fact in texts.facts):
            return cls(texts, texts, {})
        owners: dict[str, tuple[int, int]] = {}
        apart: list[Candidate] = []
        for at, fact in enumerate(texts.facts):
            for number, passage in enumerate(fact.passages):
                candidate = _passage(fact, number, passage)
                owners[candidate.fact_id] = at, number
                apart.append(candidate)
            if not fact.passages:
                apart.append(fact)
        return cls(texts, replace(texts, facts=tuple(apart)), owners)

    def pinned(self, ids: Collection[str]) -> Collection[str]:
        """These ids of texts, and the ids of their passages."""
        if not self.owners or not ids:
            return ids
        facts = self.texts.facts
        own = [id_ for id_, (at, _) in self.owners.items() if facts[at].fact_id in ids]
        return (*ids, *own)

    def text_id(self, id_: str) -> str:
        """The id of a passage's text; the same id for any other candidate."""
        owner = self.owners.get(id_)
        return id_ if owner is None else self.texts.facts[owner[0]].fact_id

    def packed(self, pack: Callable[[int | None], PackResult], k: int | None) -> PackResult:
        """Pack with `k` as the maximum number of texts instead of passages."""
        if not self.owners or k is None:
            return pack(k)
        every = pack(None)
        # Texts of which no whole passage fits count too, since parts of them may be shown.
        ranked = sorted(every.over_budget, key=_by_rank)
        chosen = set(list(dict.fromkeys(self._texts((*every.packed, *ranked))))[:k])
        beyond = [fact for fact in (*every.packed, *ranked) if not self._in(chosen, fact)]
        return replace(
            every,
            packed=tuple(fact for fact in every.packed if self._in(chosen, fact)),
            over_budget=tuple(fact for fact in every.over_budget if self._in(chosen, fact)),
            over_k=tuple(sorted(beyond, key=_by_rank)),
        )

    def joined(self, packed: Sequence[RankedFact]) -> tuple[RankedFact, ...]:
        """The passages of each text as one fact, at the place of the first of them."""
        if not self.owners:
            return tuple(packed)
        shown: dict[str, list[RankedFact]] = {}
        for fact in packed:
            shown.setdefault(self.text_id(fact.candidate.fact_id), []).append(fact)
        return tuple(self._join(facts) for facts in shown.values())

    def packing(self, packing: PackResult, k: int | None) -> PackResult:
        """Turn a packing of passages into one of texts; a text with a shown part is packed."""
        if not self.owners:
            return packing
        settled = set(self._texts(packing.packed))
        if k is not None and len(settled) < k:
            # Fewer texts than the cap fit, so the budget and not the cap excluded the others.
            over = sorted((*packing.over_budget, *packing.over_k), key=_by_rank)
            packing = replace(packing, over_budget=tuple(over), over_k=())
        duplicates: list[tuple[RankedFact, str]] = []
        left, over_k = (set(self._texts(facts)) for facts in (packing.over_budget, packing.over_k))
        for fact, stand_in in packing.duplicates:
            id_ = self.text_id(fact.candidate.fact_id)
            # A text is a duplicate only if all of its passages are.
            if id_ not in settled and id_ not in left and id_ not in over_k:
                settled.add(id_)
                duplicates.append((self._whole(fact), self.text_id(stand_in)))
        return replace(
            packing,
            packed=self.joined(packing.packed),
            over_budget=self._unseen(packing.over_budget, settled),
            over_k=self._unseen(packing.over_k, settled | left),
            duplicates=tuple(duplicates),
        )

    def ranking(self, ranking: Ranking) -> Ranking:
        """Turn a ranking of passages into one of texts, each at the place of its best passage."""
        if not self.owners:
            return ranking
        places = [at for at, own in enumerate(pair_places(self.texts.facts)) for _ in own]
        return replace(
            ranking,
            every=self._unseen(ranking.every, set()),
            picks=list(dict.fromkeys(places[at] for at in ranking.picks)),
        )

    def conflicts(self, shown: Sequence[RankedFact]) -> tuple[Conflict, ...]:
        """Pairs of ids of shown facts that are near-identical but contradict each other."""
        facts = self.passages.facts
        ids = {ranked.candidate.fact_id for ranked in shown}
        places = [at for at, fact in enumerate(facts) if fact.fact_id in ids]
        pairs = as_pairs(self.passages.conflicts).within(places)
        named = [(self.text_id(facts[i].fact_id), self.text_id(facts[j].fact_id)) for i, j in pairs]
        return tuple(
            Conflict(left=left, right=right)
            for left, right in dict.fromkeys(named)
            if left != right
        )

    def folded(self, passages: Candidates) -> Candidates:
        """Turn passages that were changed since, as by a reranker, back into texts."""
        if not self.owners:
            return passages
        rest = iter(passages.facts)
        facts = tuple(
            fold_passages(
                fact,
                [(passage.start, passage.end) for passage in fact.passages],
                [next(rest) for _ in own],
            )
            for fact, own in zip(self.texts.facts, pair_places(self.texts.facts), strict=True)
        )
        return replace(passages, facts=facts)

    def _texts(self, facts: Iterable[RankedFact]) -> list[str]:
        return [self.text_id(fact.candidate.fact_id) for fact in facts]

    def _in(self, ids: Collection[str], fact: RankedFact) -> bool:
        return self.text_id(fact.candidate.fact_id) in ids

    def _whole(self, fact: RankedFact) -> RankedFact:
        """A passage's whole text with the passage's rank."""
        owner = self.owners.get(fact.candidate.fact_id)
        return fact if owner is None else fact._replace(candidate=self.texts.facts[owner[0]])

    def _unseen(
        self, facts: Sequence[RankedFact], settled: Collection[str]
    ) -> tuple[RankedFact, ...]:
        """The texts of passages, each once, without those whose id is in `settled`."""
        first: dict[str, RankedFact] = {}
        for fact in facts:
            first.setdefault(self.text_id(fact.candidate.fact_id), fact)
        return tuple(self._whole(fact) for id_, fact in first.items() if id_ not in settled)

    def _join(self, facts: Sequence[RankedFact]) -> RankedFact:
        """Join the packed passages of one text into one fact."""
        best = facts[0]
        owner = self.owners.get(best.candidate.fact_id)
        if owner is None:
            return best
        text = self.texts.facts[owner[0]]
        spans: list[Span] = []
        # Number of the passage that would adjoin the last span; -1 if none can.
        joint = -1
        for number, fact in sorted(
            (self.owners[fact.candidate.fact_id][1], fact) for fact in facts
        ):
            passage = text.passages[number]
            whole = ((0, passage.end - passage.start),)
            for start, end in fact.candidate.spans or whole:
                begin, stop = passage.start + start, passage.start + end
                if spans and start == 0 and joint == number:
                    spans[-1] = (spans[-1][0], stop)
                else:
                    spans.append((begin, stop))
                joint = number + 1 if stop == passage.end else -1
        if spans == [(text.passages[0].start, text.passages[-1].end)]:
            return best._replace(candidate=text)
        content = ELLIPSIS.join(text.content[start:end] for start, end in spans)
        part = replace(
            text,
            content=content,
            tokens=sum(fact.candidate.tokens for fact in facts),
            stretches=(),
            passages=(),
            spans=tuple(spans),
            content_hash=sha256(text.content),
        )
        return best._replace(candidate=part)


def fold_passages(
    text: Candidate, spans: Sequence[Span], passages: Sequence[Candidate]
) -> Candidate:
    """A text with its scored passages; its own scores are the best of theirs."""
    if len(passages) == 1:
        return replace(passages[0], fact_id=text.fact_id)
    best = max(passages, key=lambda passage: passage.merit)
    scored = tuple(
        ScoredPassage(
            start,
            end,
            passage.relevance,
            passage.merit,
            passage.lexical,
            passage.hop,
            passage.tokens,
        )
        for (start, end), passage in zip(spans, passages, strict=True)
    )
    stretches = tuple(
        ScoredSpan(start + part.start, start + part.end, part.score)
        for (start, _), passage in zip(spans, passages, strict=True)
        for part in passage.stretches
    )
    return replace(
        text,
        relevance=max(passage.relevance for passage in passages),
        score=best.score,
        lexical=max(passage.lexical for passage in passages),
        hop=max(passage.hop for passage in passages),
        stretches=stretches,
        passages=scored,
    )


def _passage(text: Candidate, number: int, passage: ScoredPassage) -> Candidate:
    """Make a candidate of a passage."""
    start, end = passage.start, passage.end
    return replace(
        text,
        fact_id=passage_id(text.fact_id, number),
        content=text.content[start:end],
        relevance=passage.relevance,
        score=passage.score,
        lexical=passage.lexical,
        hop=passage.hop,
        tokens=passage.tokens,
        stretches=tuple(
            ScoredSpan(stretch.start - start, stretch.end - start, stretch.score)
            for stretch in text.stretches
            if start <= stretch.start and stretch.end <= end
        ),
        passages=(),
    )


def _by_rank(fact: RankedFact) -> tuple[int, str]:
    return -fact.composite, fact.candidate.fact_id


EXCERPT = "excerpt@1"

# With fewer tokens left, the search for parts stops, as hardly any sentence fits.
_MIN_TOKENS_LEFT = 8


@dataclass(frozen=True, slots=True)
class PartChoice:
    """Chosen parts of facts, best first.

    Attributes:
        facts: the facts that were left out, in rank order.
        chosen: for each part, the position of its fact and the number of its stretch.
    """

    facts: Sequence[RankedFact]
    chosen: tuple[tuple[int, int], ...]
    # Excerpts by fact and parts, kept because a lightened choice needs most of them again.
    _excerpts: dict[tuple[int, ...], Candidate] = field(default_factory=dict, repr=False)

    def lightened(self, excess: int) -> PartChoice:
        """The choice without the parts chosen last; at least one is removed.

        Parts are removed until they reach half of the excess, as in `PackResult.lightened`.
        """
        count, freed = len(self.chosen), 0
        while count and 2 * freed < excess:
            count -= 1
            fact, number = self.chosen[count]
            candidate = self.facts[fact].candidate
            stretch = candidate.stretches[number]
            freed += _estimate_tokens(candidate, stretch.end - stretch.start)
        return replace(self, chosen=self.chosen[:count])

    def shown(self) -> dict[int, RankedFact]:
        """The excerpts by position of the fact; a fact is whole if all its parts were chosen."""
        numbers: dict[int, list[int]] = {}
        for fact, number in self.chosen:
            numbers.setdefault(fact, []).append(number)
        shown: dict[int, RankedFact] = {}
        for fact, parts in sorted(numbers.items()):
            ranked, parts = self.facts[fact], sorted(parts)
            excerpt = self._excerpts.get((fact, *parts))
            if excerpt is None:
                excerpt = _make_excerpt(ranked.candidate, parts)
                self._excerpts[fact, *parts] = excerpt
            shown[fact] = ranked._replace(candidate=excerpt)
        return shown


def whole_budget(budget_tokens: int, settings: HybridSettings, k: int | None) -> int:
    """Tokens that whole facts may fill; the whole budget where no parts are shown.

    With a maximum number `k` of facts no parts are shown, since it counts whole facts.
    """
    if not settings.enabled or k is not None:
        return budget_tokens
    return int(settings.whole_share * budget_tokens)


def choose_parts(
    left: Sequence[RankedFact], room: int, settings: HybridSettings, counter: TokenCounter
) -> PartChoice:
    """Choose parts of facts that were left out, best first, as long as they fit.

    Spec: CRP-SPEC-003 §7.3 (decision E17)
    """
    marker, gap = (max(0, count) for count in counter.count_many([marker_text(""), ELLIPSIS]))
    chosen: list[tuple[int, int]] = []
    begun: dict[int, set[int]] = {}
    texts: set[str] = set()
    facts = [ranked.candidate for ranked in left]
    for place, number in _best_spans(facts, settings.stretches_seen):
        if room < _MIN_TOKENS_LEFT:
            break
        fact, shown = facts[place], begun.get(place)
        if shown is None:
            extra = marker
        else:
            extra = 0 if number - 1 in shown or number + 1 in shown else gap
        start, end, _ = fact.stretches[number]
        tokens = extra + _estimate_tokens(fact, end - start)
        if tokens > room:
            continue
        words = fact.content[start:end]
        if words not in texts:
            room -= tokens
            begun.setdefault(place, set()).add(number)
            texts.add(words)
            chosen.append((place, number))
    return PartChoice(left, tuple(chosen))


def add_parts(packing: PackResult, shown: Mapping[int, RankedFact]) -> PackResult:
    """The packing with facts that are shown in part after the whole ones."""
    left = [fact for place, fact in enumerate(packing.over_budget) if place not in shown]
    return replace(packing, packed=(*packing.packed, *shown.values()), over_budget=tuple(left))


def count_parts(packing: PackResult, counter: TokenCounter) -> PackResult:
    """The packing with counted instead of estimated tokens for facts that are shown in part."""
    parts = [place for place, fact in enumerate(packing.packed) if fact.candidate.spans]
    texts = [marker_text(packing.packed[place].candidate.content) for place in parts]
    tokens = dict(zip(parts, counter.count_many(texts), strict=True))
    return replace(
        packing,
        packed=tuple(
            fact._replace(candidate=replace(fact.candidate, tokens=max(0, tokens[place])))
            if place in tokens
            else fact
            for place, fact in enumerate(packing.packed)
        ),
    )


def _best_spans(facts: Sequence[Candidate], most: int) -> list[tuple[int, int]]:
    """Position of the fact and number of the stretch, best scores first, ties by these."""
    spans = [
        (-span.score, place, number)
        for place, fact in enumerate(facts)
        for number, span in enumerate(fact.stretches)
    ]
    return [(place, number) for _, place, number in sorted(spans)[:most]]


def _estimate_tokens(fact: Candidate, characters: int) -> int:
    """Tokens of this many characters of a fact, in proportion and rounded up."""
    return -(-fact.tokens * characters // max(1, len(fact.content)))


def _make_excerpt(fact: Candidate, parts: Sequence[int]) -> Candidate:
    if len(parts) == len(fact.stretches):
        return fact
    spans: list[tuple[int, int]] = []
    previous = -2
    for number in parts:
        start, end, _ = fact.stretches[number]
        if number == previous + 1:
            # The white space between two adjoining sentences is shown with them.
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        previous = number
    content = ELLIPSIS.join(fact.content[start:end] for start, end in spans)
    return replace(
        fact,
        content=content,
        tokens=_estimate_tokens(fact, len(content)),
        stretches=(),
        spans=tuple(spans),
        content_hash=sha256(fact.content),
    )
