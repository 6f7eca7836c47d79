"""Laws of the exact comparison, over made sentences."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.dpe.records import Claim
from tests.dpe.comparing import compared, statuses

# Each sentence has a subject of its own, so that none says anything of another's.
NAMES = ("Acme", "Borealis", "Corvex", "Dunmore", "Elbridge", "Fenwick")
VERBS = ("employs {} people", "sold {} pumps", "operates {} ferries", "owns {} barges")


@st.composite
def facts(draw: st.DrawFn) -> list[tuple[str, int, int, str]]:
    """Sentences as name, figure, changed figure and predicate; no figure is another's."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    figures = draw(
        st.lists(
            st.integers(100, 9000), min_size=2 * len(names), max_size=2 * len(names), unique=True
        )
    )
    return [
        (name, figures[2 * n], figures[2 * n + 1], draw(st.sampled_from(VERBS)))
        for n, name in enumerate(names)
    ]


def sentence(name: str, figure: int, predicate: str) -> str:
    return f"{name} {predicate.format(figure)}."


def findings(claims: tuple[Claim, ...]) -> list[tuple[str, str, str | None]]:
    return [(f.kind, c.text, f.expected) for c in claims for f in c.findings]


@settings(max_examples=60, deadline=None)
@given(facts(), st.permutations(range(4)))
def test_order_of_passages_and_unrelated_ones_change_nothing(
    rows: list[tuple[str, int, int, str]], order: list[int]
) -> None:
    name, figure, changed, predicate = rows[0]
    answer = sentence(name, changed, predicate)
    alone = compared(answer, [sentence(name, figure, predicate)])
    passages = [
        sentence(name, figure, predicate),
        "Rain fell along the coast at 7:15.",
        "It was a cold morning with fog. " * 40,
        '{"city": "Oslo", "tmin": -3}',
    ]
    shuffled = compared(answer, [passages[place] for place in order])
    assert findings(alone) == findings(shuffled)
    assert [c.status for c in alone] == [c.status for c in shuffled]


@settings(max_examples=60, deadline=None)
@given(facts())
def test_a_clause_of_a_passage_is_supported(rows: list[tuple[str, int, int, str]]) -> None:
    passages = [sentence(name, figure, predicate) for name, figure, _, predicate in rows]
    answer = " ".join(passages)
    assert set(statuses(answer, passages)) == {"SUPPORTED"}
    assert set(statuses(answer, [" ".join(passages)])) == {"SUPPORTED"}
    joined = f"{passages[0][:-1]} and rents a dock."
    assert statuses(passages[0], [joined]) == ["SUPPORTED"]
    name = rows[0][0]
    assert statuses(f"{name} rents a dock.", [joined]) == ["SUPPORTED"]


@settings(max_examples=60, deadline=None)
@given(facts(), st.booleans())
def test_a_wrong_statement_beside_others_stays_wrong(
    rows: list[tuple[str, int, int, str]], first: bool
) -> None:
    passages = [sentence(name, figure, predicate) for name, figure, _, predicate in rows]
    name, _, changed, predicate = rows[0]
    wrong = sentence(name, changed, predicate)
    alone = findings(compared(wrong, passages))
    rest = [*passages[1:], "Dock fees rise."]
    answer = " ".join([wrong, *rest] if first else [*rest, wrong])
    # Arithmetic over the passages may explain it, alone and beside others alike.
    assert findings(compared(answer, passages)) == alone
