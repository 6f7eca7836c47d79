"""Word search in rows of falling impact: FTS5's scores, and no more rows than they need."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from crp_integrations.stores import rules
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.stores.postgres import PostgresStore, postings, word_search
from crp_integrations.stores.postgres.connection import PostgresConnection
from crp_integrations.testing.fixtures import NAMESPACE, NOON, fact, rows
from crp_integrations.vocabulary import FactStatus
from tests.postgres import postgres_address  # noqa: F401 - a fixture

WORDS = [f"word{number}" for number in range(60)]
# More frequent the earlier they are in the list.
SHARES = [1.0 / (number + 2) for number in range(len(WORDS))]


@pytest.fixture
def small_rows(monkeypatch):
    """Rows and round trips so small that few facts fill many of them."""
    monkeypatch.setattr(postings, "_ROWS", (2, 4))
    monkeypatch.setattr(postings, "_LAST_ROWS", 6)
    monkeypatch.setattr(postings, "_MERGED", 3)
    monkeypatch.setattr(word_search, "_READ", 5)
    monkeypatch.setattr(word_search, "_LOOKED_UP", 12)
    # Four terms are many, and then a stem in ten facts is common.
    monkeypatch.setattr(rules, "MANY_TERMS", 3)
    monkeypatch.setattr(rules, "COMMON", 10)
    # Of tied facts, first a page of all by id: it may have too few of them.
    monkeypatch.setattr(word_search, "_PAGED", 0)


@pytest.fixture
def pair(postgres_address, small_rows):  # noqa: F811
    theirs = PostgresStore(postgres_address)
    yield MemoryStore(), theirs
    theirs.close()


def texts(chance: random.Random, count: int, words: tuple[int, int]) -> list[str]:
    """Texts whose words have a skewed distribution, each a text of its own."""
    return [
        f"text{chance.random()} "
        + " ".join(chance.choices(WORDS, SHARES, k=chance.randint(*words)))
        for _ in range(count)
    ]


def questions(chance: random.Random) -> list[list[str]]:
    """Frequent words, rare ones, both, words of one stem, phrases, unknown words."""
    mixed = [chance.sample(WORDS, chance.randint(1, 6)) for _ in range(20)]
    fixed = [WORDS[:2], [*WORDS[:3], WORDS[-1]], ["word1", "WORD1"], ["word0-word1", "word5"]]
    many = [[*WORDS[:2], *WORDS[-3:], "word0-word50", "word1-word0", "?!"], WORDS[:4]]
    phrases = [["word1-word0-word2"], ["no-such", "word2"]]
    return [*mixed, *fixed, *many, *phrases, ["unknown", "word3"]]


def assert_equal_hits(pair, chance: random.Random) -> None:
    ours, theirs = pair
    with (
        ours.begin(NAMESPACE, write=False) as expected,
        theirs.begin(NAMESPACE, write=False) as found,
    ):
        for terms in questions(chance):
            for k in (1, 5, 500):
                assert found.facts.search_text(terms, k) == expected.facts.search_text(terms, k)
    assert theirs.check(NAMESPACE) == []


@pytest.mark.parametrize("seed", range(2))
def test_facts_and_scores_are_those_of_the_embedded_store_to_the_bit(pair, seed):
    chance = random.Random(seed)
    ids: list[str] = []
    for lengths in ((5, 30), (80, 200), (1, 6), (5, 60)):
        # The mean length moves, so that earlier rows were written under another one.
        for count in (40, 7, 1, 12):
            made = [fact(text) for text in texts(chance, count, lengths)]
            ids += [one.fact_id for one in made]
            for store in pair:
                with store.begin(NAMESPACE) as transaction:
                    transaction.facts.add(made, rows(made))
        assert_equal_hits(pair, chance)
        gone, aside, archived, changed = (chance.sample(ids, 4) for _ in range(4))
        for store in pair:
            with store.begin(NAMESPACE) as transaction:
                facts = transaction.facts
                facts.set_status(aside, FactStatus.QUARANTINED, NOON)
                facts.set_archived(archived, NOON)
                kept = facts.get(changed)
                facts.replace([one.changed(content=f"{one.content} word0 word9") for one in kept])
                facts.remove(gone)
        ids = [id_ for id_ in ids if id_ not in gone]
        assert_equal_hits(pair, chance)
        for store in pair:
            with store.begin(NAMESPACE) as transaction:
                there = [id_ for id_ in aside if id_ in ids]
                transaction.facts.set_status(there, FactStatus.ACTIVE, NOON)
        assert_equal_hits(pair, chance)


def test_a_search_of_many_terms_leaves_out_the_common_ones_while_k_facts_have_others(pair):
    made = [fact(f"The sea number {number} is blue.") for number in range(12)]
    made += [fact("The harbour has a lighthouse."), fact("A lighthouse by the blue sea.")]
    lighthouses = {one.fact_id for one in made[12:]}
    for store in pair:
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add(made, rows(made))
        with store.begin(NAMESPACE, write=False) as transaction:
            found = partial(transaction.facts.search_text, k=2)
            # Three terms are few: both of the best contain the sea as well.
            assert found(["sea", "blue", "lighthouse"]) != found(["lighthouse"])
            # Of more, the words in over ten facts are left out, and a phrase stays.
            many = ["sea", "blue", "lighthouse", "seas"]
            assert found(many) == found(["lighthouse"])
            assert {id_ for id_, _ in found(many)} == lighthouses
            assert found([*many[:3], "number-7"], k=3)[0][0] == made[7].fact_id
            # What occurs nowhere leaves too few hits, and so does a higher k.
            assert len(found(["sea", "blue", "seas", "frobnicate", "?!", "no-phrase"])) == 2
            assert len(found(many, k=50)) == 14
    assert_equal_hits(pair, random.Random(1))


def test_a_search_reads_few_rows_of_frequent_stems(pair, monkeypatch):
    theirs, chance = pair[1], random.Random(1)
    monkeypatch.setattr(word_search, "_LOOKED_UP", 200)
    made = [fact(text) for text in texts(chance, 900, (5, 60))]
    with theirs.begin(NAMESPACE) as transaction:
        transaction.facts.add(made, rows(made))
    sizes: list[int] = []
    unpacked = word_search.unpacked
    monkeypatch.setattr(
        word_search, "unpacked", lambda parts: sizes.append(len(parts)) or unpacked(parts)
    )
    with theirs.begin(NAMESPACE, write=False) as transaction:
        (all_rows,) = transaction.facts.statements.one(
            "SELECT count(*) FROM postings WHERE stem IN ('word2', 'word3', 'word40')"
        )
        transaction.facts.search_text(["word2", "word3", "word40"], 5)
    assert 0 < sum(sizes) < all_rows / 2


def test_of_equal_scores_only_the_ids_that_are_wanted_are_fetched(pair, monkeypatch):
    texts_of_a_template = [f"the sea is blue {number}" for number in range(300)]
    made = [fact(text) for text in [*texts_of_a_template, "sea sea", "the sea of seas"]]
    for store in pair:
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add(made, rows(made))
    assert_equal_hits(pair, random.Random(1))
    fetched: list[int] = []
    unchanged = PostgresConnection.rows

    def counted(self, statement, parameters=()):
        answer = unchanged(self, statement, parameters)
        fetched.append(len(answer) if "fact_id FROM facts" in statement else 0)
        return answer

    monkeypatch.setattr(PostgresConnection, "rows", counted)
    ours, theirs = pair
    with (
        ours.begin(NAMESPACE, write=False) as expected,
        theirs.begin(NAMESPACE, write=False) as actual,
    ):
        for k in (1, 2, 3, 50, 302, 1_000):
            fetched.clear()
            hits = actual.facts.search_text(["sea", "blue"], k)
            assert hits == expected.facts.search_text(["sea", "blue"], k)
            assert len(hits) == min(k, 302) <= sum(fetched) <= 2 * k


FEW = ["aa", "ab", "ba", "bb"]
PAIRS = [f"{first}-{second}" for first in FEW for second in FEW]
PHRASES = st.lists(st.sampled_from(FEW), min_size=1, max_size=4).map("-".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(PHRASES, st.integers(1, 12)), min_size=1, max_size=8),
    st.lists(st.lists(PHRASES, min_size=1, max_size=3, unique=True), min_size=1, max_size=4),
    st.integers(1, 6),
)
@example([("ba-aa-ab", 2), ("aa-aa-aa-aa", 2), ("aa", 2)], [["aa-aa"], ["ab-aa", "ab"]], 5)
@example([(pair, 8) for pair in PAIRS], [[pair] for pair in PAIRS], 1)
def test_phrases_of_common_stems_and_many_equal_texts_have_the_scores_and_order_of_fts5(
    pair, monkeypatch, repeated, questions, k
):
    # Hashes of two letters, whose bytes recur within and across the hashes of other stems.
    for module in (postings, word_search):
        monkeypatch.setattr(module, "hashed", lambda stem: f"{stem[0] * 7}{stem[-1]}".encode())
    texts = [words for words, count in dict(repeated).items() for _ in range(count)]
    # Equal but for their signs: other ids, equal scores.
    made = [fact(f"{words}{'!' * at}") for at, words in enumerate(texts)]
    ids = [one.fact_id for one in made]
    ours, theirs = pair
    for store in pair:
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add(made, rows(made))
    # At the end all are removed, for the next example.
    for gone in (ids[::3], [id_ for at, id_ in enumerate(ids) if at % 3]):
        with (
            ours.begin(NAMESPACE, write=False) as expected,
            theirs.begin(NAMESPACE, write=False) as actual,
        ):
            for terms in questions:
                hits = actual.facts.search_text(terms, k)
                assert hits == expected.facts.search_text(terms, k)
        for store in pair:
            with store.begin(NAMESPACE) as transaction:
                transaction.facts.remove(gone)


def test_of_a_phrase_only_the_texts_that_repeat_it_are_fetched(pair, monkeypatch):
    texts_of_a_template = [f"the sea is blue {number}" for number in range(40)]
    made = [fact(text) for text in [*texts_of_a_template, "blue is the sea", "sea is sea is"]]
    for store in pair:
        with store.begin(NAMESPACE) as transaction:
            transaction.facts.add(made, rows(made))
    fetched: list[int] = []
    unchanged = word_search._sequences

    def counted(connection, facts):
        fetched.append(len(facts))
        return unchanged(connection, facts)

    monkeypatch.setattr(word_search, "_sequences", counted)
    ours, theirs = pair
    with (
        ours.begin(NAMESPACE, write=False) as expected,
        theirs.begin(NAMESPACE, write=False) as actual,
    ):
        hits = actual.facts.search_text(["sea-is"], 100)
        assert hits == expected.facts.search_text(["sea-is"], 100)
    assert len(hits) == 41
    assert fetched == [1]


@pytest.mark.parametrize("adds", [3, 30])
def test_segments_of_a_stem_are_merged(pair, adds):
    theirs = pair[1]
    for number in range(adds):
        made = [fact(f"sea {number}")]
        with theirs.begin(NAMESPACE) as transaction:
            transaction.facts.add(made, rows(made))
    with theirs.begin(NAMESPACE, write=False) as transaction:
        statement = "SELECT count(DISTINCT segment), sum(size) FROM postings WHERE stem = 'sea'"
        segments, size = transaction.facts.statements.one(statement)
    assert (segments, size) == ({3: 1, 30: 2}[adds], adds)
