"""Questions are taken apart into what must be looked up, and nothing is lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crp_integrations.envelope.decomposition import complete_needs, decompose, lost_words
from crp_integrations.envelope.settings import DecomposeSettings, EnvelopeSettings
from crp_integrations.language.questions.frame import mask_question, split_tasks

RULES = DecomposeSettings()
COTTON_BOWL = "The 2015 Cotton Bowl was played at the stadium that was the home of which NFL team?"


def needs(question: str, **fields: int) -> tuple[str, ...]:
    return decompose(question, RULES.model_copy(update=fields))


@pytest.mark.requirement("003-5.2-2")
def test_the_worked_example_of_the_envelope() -> None:
    question = "Compare the EU AI Act and GDPR approaches to automated decision-making"
    assert needs(question) == (
        "EU AI Act automated decision-making",
        "GDPR automated decision-making",
        "EU AI Act vs GDPR comparison",
    )


def test_the_worked_example_of_the_provenance_engine() -> None:
    question = (
        "Compare EU AI Act and GDPR approaches to automated decision-making "
        "and list the compliance requirements for each"
    )
    assert needs(question) == (
        "EU AI Act approach to automated decision-making",
        "GDPR approach to automated decision-making",
        "Comparison between the two approaches",
        "EU AI Act compliance requirements",
        "GDPR compliance requirements",
    )


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        # The rules of the worked examples, on other things.
        (
            "Compare the Kyoto Protocol and Paris Agreement positions on carbon trading",
            (
                "Kyoto Protocol carbon trading",
                "Paris Agreement carbon trading",
                "Kyoto Protocol vs Paris Agreement comparison",
            ),
        ),
        (
            "Contrast Rust, Go and Zig views on error handling and summarise the tooling for each",
            (
                "Rust view on error handling",
                "Go view on error handling",
                "Zig view on error handling",
                "Comparison between the three views",
                "Rust tooling",
                "Go tooling",
                "Zig tooling",
            ),
        ),
        (
            "How does Python differ from Java in memory management?",
            ("Python memory management", "Java memory management", "Python vs Java comparison"),
        ),
        (
            "What is the difference in data retention between Kafka and Pulsar?",
            ("Kafka data retention", "Pulsar data retention", "Kafka vs Pulsar comparison"),
        ),
        (
            "Postgres vs. MySQL for time series",
            ("Postgres for time series", "MySQL for time series", "Postgres vs MySQL comparison"),
        ),
    ],
)
def test_comparisons(question: str, wanted: tuple[str, ...]) -> None:
    assert needs(question) == wanted


@pytest.mark.requirement("003-5.2-1")
@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        # Which of several.
        (
            "Which tennis player is younger, John Newcombe or Květa Peschke?",
            ("John Newcombe tennis player is younger", "Květa Peschke tennis player is younger"),
        ),
        (
            "How many more stories tall is Williams Tower than the Skanska building?",
            (
                "Williams Tower many more stories tall is",
                "the Skanska many more stories tall is building",
            ),
        ),
        # Several at once, and lists.
        (
            "Were Frank Tashlin and George Kuchar both animators?",
            ("Frank Tashlin animators", "George Kuchar animators"),
        ),
        (
            "What is the population of France, Germany and Italy?",
            ("population of France", "population of Germany", "population of Italy"),
        ),
        (
            "What are the causes, symptoms and treatment of malaria?",
            ("causes of malaria", "symptoms of malaria", "treatment of malaria"),
        ),
        # Several conditions.
        (
            "Which country includes Nova Roma and shares a border with Argentina?",
            ("Which country includes Nova Roma", "country shares a border with Argentina"),
        ),
        # Several tasks.
        (
            "What is the GDPR and when did it take effect?",
            ("What is the GDPR", "when did it take effect"),
        ),
        (
            "Who founded Meridian Systems? How many people work there?",
            ("Who founded Meridian Systems", "How many people work there"),
        ),
        # A need that rests on another: the inner one first.
        (
            "Who is the mother of the director of film X?",
            ("director of film X", "Who is the mother of the director of film X?"),
        ),
        (
            "What college did the President who attended Minneapolis High School go to?",
            (
                "President who attended Minneapolis High School",
                "What college did the President who attended Minneapolis High School go to?",
            ),
        ),
        (
            COTTON_BOWL,
            (
                "The 2015 Cotton Bowl was played at the stadium",
                COTTON_BOWL,
            ),
        ),
    ],
)
def test_several_needs_are_told_apart(question: str, wanted: tuple[str, ...]) -> None:
    assert needs(question) == wanted


@pytest.mark.requirement("003-5.2-1")
@pytest.mark.parametrize(
    "question",
    [
        "What is the fee|, |who pays it| and |when is it due|?",
        "What is the fee|, |who pays it|, |when is it due|?",
        "When does the lease end|, |what is the deposit|, and |are pets allowed|?",
        "How much is the deposit|, |when is the rent due|, and |who repairs the boiler|?",
        "How much is the deposit|, |when is the rent due| and |can I sublet|?",
        "Can I bring a dog|, |is parking free|, and |how late is check-in|?",
        "Is breakfast included|, |what time is checkout|, and |do you have wifi|?",
        "Is smoking allowed|, and |are pets permitted|?",
        "Is a deposit due| and |has the fee been paid|?",
        "Was Obama born in Hawaii| and |is Biden from Delaware|?",
        "Is Oslo in Norway| and |is it older than Bergen|?",
        "Who founded Acme| and |where was he born|?",
        "Who runs Acme|, and |what are its plans|?",
        "Who may row|, |at what level does it stop| and |which boats are free|?",
        "What's the fee|, |who's the owner| and |when's it due|?",
        "When and where is the fair|, and |who runs the stall|?",
        "Tell me what the fee is|, |who pays it|, and |when it is due|.",
        "Tell me which plan is cheap| and |who can sign up|.",
        "Explain how Raft works| and |describe how it handles splits|.",
        "If I cancel late, do I pay a fee|, and |how much is it|?",
        "Can I bring my dog|, and |if so, what does it cost|?",
        "We hold a wedding: do we need a permit|, |what does it cost| and |is there a shelter|?",
        "Who founded Acme|? |When was it sold|?",
        # Other languages: sentences alone are cut.
        "Wann wurde Acme verkauft|? |Wer leitet sie|?",
        "¿Quién fundó Acme|? |¿Cuándo se vendió|?",
        "Quand Acme a-t-elle été fondée |? |Quand a-t-elle été vendue |?",
    ],
)
def test_questions_that_are_joined_are_asked_one_by_one(question: str) -> None:
    pieces = question.split("|")
    assert needs("".join(pieces)) == tuple(piece.strip() for piece in pieces[::2] if piece[1:])


@pytest.mark.requirement("003-5.2-1")
@pytest.mark.parametrize(
    "question",
    [
        "Was the bill passed by the House and was signed by the president?",
        "Is the court closed and was not reopened?",
        "Who was born in Rome, was raised in Oslo, and has won a prize?",
        "Which city hosted the games and is home to a port?",
        "What does Tim own that serves as a reminder and is his prized possession?",
        "Which actor, who won a prize, was born in Rome?",
        "In which city, where the river meets the sea, is the port?",
        "What happens when it rains and when it snows?",
        "Who pays the fee, when and how?",
        "Is the shop open on Sunday, or is it closed?",
        "Are there lockers, showers and towels?",
        "Can I smoke, drink or eat in the hall?",
        "What happens if I am late, sick or abroad?",
        "What happens if I hurt the hand, the knee or the foot?",
        "Wann wurde Acme gegründet und wer hat es verkauft?",
    ],
)
def test_a_question_is_not_cut_into_fragments(question: str) -> None:
    assert needs(question) == (question,)


def test_a_request_after_a_comparison_is_its_own() -> None:
    question = "Compare the fees of Lyon, Paris and Nantes and say which is lower"
    assert needs(question)[-2:] == ("Lyon vs Paris vs Nantes comparison", "say which is lower")
    assert needs("Does the ticket cover Lyon, Paris or Nantes?") == (
        "ticket cover Lyon",
        "ticket cover Paris",
        "ticket cover Nantes",
    )


@pytest.mark.requirement("003-5.2-1")
@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of France?",
        "  Who wrote   the Necronomicon ? ",
        "What is the purpose of the common() method?",
        "What did Melanie and her family do while camping?",
        "When did Evan and Sam plan a trip to the beach together?",
        "What does the Institute of Arts and Letters award?",
        'What is "Romeo and Juliet" about?',
        "How do I find and replace text?",
        "What was the net research and development cost of the company?",
        "How many passing touchdowns were there in the second half?",
        "Does it rain?",
        "?",
        " ",
        "",
    ],
)
def test_a_single_need_stays_as_it_was_asked(question: str) -> None:
    assert needs(question) == (question,)


def test_a_chain_is_followed_as_deep_as_it_is_allowed() -> None:
    question = "Who is the wife of the owner of the label that signed the singer of Hallelujah?"
    chain = needs(question)
    assert len(chain) == 3
    assert chain[-1] == question
    assert chain[0] in chain[1] or chain[1] in chain[0]
    assert needs(question, depth=1) == chain[1:]
    assert needs(question, depth=0) == (question,)


def test_the_limits_are_settings() -> None:
    question = "Compare Rust, Go and Zig views on error handling and list the tooling for each"
    assert len(needs(question)) == 7
    few = needs(question, most=3)
    assert len(few) == 3
    assert few[-1] == question
    assert needs(question, most=1) == (question,)
    assert needs(question, longest=len(question) - 1) == (question,)
    assert decompose(question, DecomposeSettings(rules=False)) == (question,)


def test_both_presets_take_questions_apart_by_rules() -> None:
    for preset in ("default", "literal"):
        assert EnvelopeSettings.preset(preset).decompose == RULES


def test_what_would_be_lost_is_said_by_the_question_itself() -> None:
    question = "Which gardens of Kyoto have moss?"
    assert lost_words(question, ["gardens of Kyoto"]) == {"moss"}
    assert complete_needs(question, ["gardens", "gardens of Kyoto"], RULES)[-1] == question
    assert complete_needs(question, ["Gardens, of Kyoto", "gardens of kyoto"], RULES) == (
        "Gardens, of Kyoto",
        question,
    )
    assert complete_needs(question, [], RULES) == (question,)


WORDS = st.sampled_from(
    """Compare compare and or , . ? ; : " ' ` vs versus than both each for of the The a who which
    what What Who Which When that where whose in by more between difference differ from it its
    France Paris GDPR director mother film owner country Film's X born written won is was did does
    list causes effects 2004 1,5 \u201cDune\u201d 'Dune' B.B. St. Dr. İ ß １２ \u200b \ue000 \x00
    \ud800 和 или 😀 - ( ) [1] approaches approach to decision-making""".split()
)
SENTENCES = st.lists(WORDS, max_size=40).map(" ".join)


@settings(max_examples=600, deadline=None)
@given(
    question=st.one_of(SENTENCES, st.text(max_size=300)),
    most=st.integers(1, 9),
    depth=st.integers(0, 4),
)
@example(question="Compare and or vs", most=8, depth=2)
@example(question="the the's of the \ue000 who \ue000's that", most=8, depth=4)
def test_nothing_is_lost_and_nothing_breaks(question: str, most: int, depth: int) -> None:
    chosen = DecomposeSettings(most=most, depth=depth)
    found = decompose(question, chosen)
    assert 1 <= len(found) <= most
    assert not lost_words(question, found)
    assert len(set(found)) == len(found)
    assert found == (question,) or all(need.strip() for need in found)
    assert len(found) > 1 or found == (question,)
    assert sum(map(len, found)) <= most * (len(question) + 60)
    assert decompose(question, chosen) == found


@settings(max_examples=60, deadline=None)
@given(
    opening=st.sampled_from(["", "Compare ", "Which ", "What is the ", "Who "]),
    pattern=st.one_of(SENTENCES, st.sampled_from(["A ", "and who is ", "the a b that ", "'a b "])),
)
def test_hostile_repetition_comes_to_an_end(opening: str, pattern: str) -> None:
    question = (opening + (pattern + " ") * 1_000)[:1_000]
    found = decompose(question, RULES)
    assert len(found) <= RULES.most
    assert not lost_words(question, found)


QUESTIONS = st.sampled_from(
    (
        "what is the fee",
        "who pays it",
        "when is it due",
        "how many rooms are free",
        "which plan costs less",
        "is there a lift",
        "can I smoke",
        "did they sell Acme",
    )
)
JOINTS = st.sampled_from((", ", ", and ", " and ", "? ", "; ", " but "))


@given(parts=st.lists(QUESTIONS, min_size=1, max_size=6), joints=st.lists(JOINTS, min_size=6))
def test_questions_are_found_whatever_joins_them(parts: list[str], joints: list[str]) -> None:
    question = parts[0]
    for part, joint in zip(parts[1:], joints, strict=False):
        # After a comma that no "and" follows, "who" and "which" open a relative clause.
        question += (" and " if part[:3] in ("who", "whi") else joint) + part
    assert [task.text for task in split_tasks(mask_question(question))] == parts


@given(question=st.one_of(SENTENCES, st.text(max_size=300)))
def test_a_question_is_cut_into_pieces_that_are_cut_no_further(question: str) -> None:
    masked = mask_question(question)
    end = 0
    for task in split_tasks(masked):
        end = masked.text.index(task.text, end) + len(task.text)
        assert split_tasks(task) == [task]
