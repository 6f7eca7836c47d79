"""A quotation is found where it stands, typography aside, and a changed one never is."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from crp_integrations.language.folded_text import Folded, folded_words, locate
from tests.dpe.judging import Case, contradicted, saying, statuses, supported

WORDS = st.sampled_from(
    "the The river Elbe flooded 4.2 12 2.5 -3 1,250 € million (net) **bold** `code` “quoted” it's "
    "Straße café cafe\u0301 naïve 10² 2½ ½ 5% U.S. e.g. A/B x*y ３０ ﬁnal 12–14 - … Öl № 東京は首都 สวัสดี "
    "विकास की हाँ não 한국어 Ελλάς ЧЕТЫРЕ مرحبا ٢٣ 十二 .5 3×4 [1] #7 \u00ad soft\u00adhyphen Nguyễn".split(
        " "
    )
)
BLANKS = st.sampled_from([" ", "  ", "\n", "\t", "\u00a0", "\u202f", "\r\n"])
TEXTS = st.lists(st.tuples(WORDS, BLANKS), min_size=1, max_size=30)


def _written(parts: list[tuple[str, str]]) -> tuple[str, list[tuple[int, int]]]:
    text, places = "", []
    for word, blank in parts:
        places.append((len(text), len(text) + len(word)))
        text += word + blank
    return text, places


def _words(text: str) -> str:
    return Folded(text).text.strip(" .,;:…!?")


@given(TEXTS, st.data())
def test_a_quotation_cut_at_blanks_is_found_at_its_offsets(
    parts: list[tuple[str, str]], data: st.DataObject
) -> None:
    text, places = _written(parts)
    first = data.draw(st.integers(0, len(places) - 1))
    last = data.draw(st.integers(first, len(places) - 1))
    quotation = text[places[first][0] : places[last][1]]
    assume(any(one.isalnum() for one in quotation))
    found = locate(quotation, Folded(text))
    assert found is not None
    start, end = found
    assert 0 <= start < end <= places[last][1]
    if "…" not in quotation:
        # The first place that reads so.
        assert _words(text[start:end]) == _words(quotation)


@given(TEXTS, st.data())
def test_case_blanks_quotes_and_dashes_do_not_matter(
    parts: list[tuple[str, str]], data: st.DataObject
) -> None:
    text, _ = _written(parts)
    assume(any(one.isalnum() for one in folded_words(text)))
    other = re.sub(r"\s+", lambda _: data.draw(BLANKS), text)
    other = other.replace("“", '"').replace("”", "„").replace("**", "").replace("–", "—")
    other = other.replace("-", "−")
    if data.draw(st.booleans()):
        other = other.upper()
    assert locate(other, Folded(text)) is not None
    assert locate(f"“{other}”", Folded(text)) is not None


@given(TEXTS, st.data())
def test_a_changed_figure_is_never_found(parts: list[tuple[str, str]], data: st.DataObject) -> None:
    text, places = _written([*parts, ("4.2", " ")])
    at = data.draw(st.sampled_from([n for n, one in enumerate(text) if one in "0123456789"]))
    start, end = next((a, b) for a, b in places if a <= at < b)
    other = data.draw(st.sampled_from([one for one in "0123456789" if one != text[at]]))
    word = text[start:at] + other + text[at + 1 : end]
    # Unless that stands elsewhere in the text.
    assume(not any(_words(word) in _words(text[a:b]) for a, b in places))
    assert locate(word, Folded(text)) is None
    assert locate(text[:start] + word + text[end:], Folded(text)) is None


@given(st.lists(st.from_regex(r"[a-z]{2,6}", fullmatch=True), min_size=2, max_size=12), st.data())
def test_a_changed_word_or_another_order_is_never_found(
    words: list[str], data: st.DataObject
) -> None:
    text = " ".join(words)
    at = data.draw(st.integers(0, len(words) - 1))
    other = data.draw(st.from_regex(r"[a-z]{2,6}", fullmatch=True))
    assume(other not in words)
    assert locate(" ".join([*words[:at], other, *words[at + 1 :]]), Folded(text)) is None
    assert locate(other, Folded(text)) is None
    assert locate(" ".join([*words, other]), Folded(text)) is None
    turned = " ".join(reversed(words))
    if turned != text:
        assert locate(turned, Folded(text)) is None


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_figure_is_found_only_as_it_stands(one: int, other: int) -> None:
    for text in (f"it was {one} then", f"it was {one}.", f"({one})", f"**{one}**", f"about {one}%"):
        assert (locate(str(other), Folded(text)) is not None) == (one == other)


@pytest.mark.parametrize(
    ("text", "quotation"),
    [
        ("He said: “We won’t pay”.", "he said: 'we won't pay'"),
        ("He said: “We won’t pay”.", 'He said: \\"We won\'t pay\\".'),
        ("The **total** is `42`.", "total is 42"),
        ("the years 2019–2021", "2019-2021"),
        ("at −5 °C", "-5 °C"),
        ("one\n  two\u00a0three", "one two three"),
        ("a line-\u00adbreak", "line-break"),
        ("the ﬁnal ﬂoor", "final floor"),
        ("５０％ of it", "50%"),
        ("die Straße", "DIE STRASSE"),
        ("cafe\u0301", "café"),
        ("café", "cafe\u0301"),
        ("Nguyê\u0303n", "Nguyễn"),
        ("2½ hours", "2 1/2 hours"),
        ("10² m", "10^2 m"),
        ("CO₂ emissions", "CO2 emissions"),
        ("1’250 francs", "1'250 francs"),
        ("dose of .5 mg", ".5 mg"),
        ("the fee, which rose in May, is 5 euros", "the fee … is 5 euros"),
        ("the fee is 5 euros. It rose", "the fee ... rose"),
        ("cat dog cat", "dog … cat"),
        ("see [1] there", "see [1]"),
        ("東京は日本の首都です。", "日本の首都"),
        ("人口は一千万人です", "一千万人"),
        ("ร้านเปิดทุกวัน", "เปิดทุกวัน"),
        ("서울은 한국의 수도이다", "한국의 수도"),
        ("عدد السكان ٢٣ ألف", "٢٣ ألف"),
        ("नई दिल्ली भारत की राजधानी है", "भारत की राजधानी"),
        ("with \ufffd within", "with \ufffd within"),
        ("Total**42**", "42"),
        ("EUR,4200,2021", "4200"),
        ("EUR,4200,2021", "2021"),
        ("EUR,4.25,2021", "4.25"),
        ("wait ... what", "wait ... what"),
    ],
)
def test_typography_aside_it_stands_there(text: str, quotation: str) -> None:
    assert locate(quotation, Folded(text)) is not None


@pytest.mark.parametrize(
    ("text", "quotation"),
    [
        ("12 tons", "2 tons"),
        ("2.5 tons", "2"),
        ("2.5 tons", "5 tons"),
        ("2.5 tons", ".5 tons"),
        ("1,250 tons", "250 tons"),
        ("1’250 francs", "1250 francs"),
        ("1’250 francs", "250 francs"),
        ("at -5 °C", "5 °C"),
        ("at −5 °C", "5 °C"),
        ("-$5 million", "$5 million"),
        ("dose of .5 mg", "5 mg"),
        ("10² m", "102 m"),
        ("10² m", "10 m"),
        ("10² m", "10"),
        ("2½ hours", "21/2 hours"),
        ("2½ hours", "2"),
        ("½ cup", "1"),
        ("3*4", "34"),
        ("2**10", "210"),
        ("un\u00adsafe", "safe"),
        ("2,5 tons", "2"),
        ("EUR,4,200", "200"),
        ("5'6 tall", "56 tall"),
        ("unsafe", "safe"),
        ("nothing", "not"),
        ("cafe\u0301", "cafe"),
        ("कमी है", "कम"),
        ("hoạt động", "ho"),
        ("각", "가"),
        ("十二年", "二年"),
        ("三百万", "百万"),
        ("๑๒ ปี", "๒ ปี"),
        ("٢٣ ألف", "٣ ألف"),
        ("㎏", "k"),
        ("cat dog", "dog … cat"),
        ("the fee is 5", "the fee … is 5 … euros"),
        ("anything", ""),
        ("anything", "…"),
        ("anything", "“”"),
        ("anything", "."),
        ("", "anything"),
    ],
)
def test_a_cut_or_changed_one_does_not(text: str, quotation: str) -> None:
    assert locate(quotation, Folded(text)) is None


@given(st.text(max_size=40), st.text(max_size=10))
def test_any_text_folds_with_offsets_within_it(text: str, quotation: str) -> None:
    folded = Folded(text)
    assert len(folded.text) == len(folded.starts) == len(folded.ends)
    assert all(0 <= a < b <= len(text) for a, b in zip(folded.starts, folded.ends, strict=True))
    found = locate(quotation, folded)
    assert found is None or 0 <= found[0] < found[1] <= len(text)
    assert folded_words(quotation) == folded_words(f" {quotation}\n")


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=30))
@example("?\u093a0")
@example(". \u093a0")
def test_a_whole_text_stands_in_itself(text: str) -> None:
    assume(
        any(one.isalnum() for one in folded_words(text)) and "..." not in text and "…" not in text
    )
    found = locate(text, Folded(text))
    assert found is not None


# --- in a verdict --------------------------------------------------------------------------------

CASE = Case(
    "The plant makes 12 tons a day. It opened in 2019.",
    ["Opened in **2019**, the plant employs 40.", "It makes 12 tons\na day."],
    question="What does the plant in Linz make?",
)


def test_quotations_stand_with_passage_and_offsets() -> None:
    report = CASE.judged(
        saying(supported(1, (2, "makes 12 tons a day")), supported(2, (1, "opened in 2019")))
    )
    assert statuses(report) == ["SUPPORTED", "SUPPORTED"]
    for claim, number in zip(report.claims, (2, 1), strict=True):
        (found,) = claim.quotations
        passage = CASE.passages[number - 1]
        assert (found.fact_id, found.passage) == (f"f{number}", number)
        assert found.text == passage[found.start : found.end]
    assert report.claims[1].quotations[0].text == "Opened in **2019"


@pytest.mark.parametrize("status", ["SUPPORTED", "CONTRADICTED"])
def test_without_a_quotation_such_a_verdict_does_not_count(status: str) -> None:
    report = CASE.judged(saying({"n": 1, "status": status}, supported(2, (1, "2019"))))
    assert statuses(report) == ["NOT_CHECKED", "SUPPORTED"]


@pytest.mark.parametrize(
    "places",
    [
        [(1, "makes 12 tons")],
        [(2, "makes 13 tons")],
        [(3, "makes 12 tons")],
        [(0, "makes 12 tons")],
        [("q", "makes 12 tons")],
        [("s", "makes 12 tons")],
        [("the second", "makes 12 tons")],
        [("f2", "makes 12 tons")],
        [(2, "")],
    ],
)
@pytest.mark.parametrize("made", [supported, contradicted])
def test_a_quotation_that_does_not_stand_in_its_passage_undoes_its_verdict(
    places: list[tuple[int | str, str]], made: object
) -> None:
    verdict = supported(1, *places) if made is supported else contradicted(1, *places)
    assert statuses(CASE.judged(saying(verdict)))[0] == "NOT_CHECKED"


@pytest.mark.parametrize(
    ("made", "status"), [(supported, "SUPPORTED"), (contradicted, "NOT_CHECKED")]
)
def test_one_of_two_quotations_bears_a_claim_out_and_holds_nothing_against_it(
    made: object, status: str
) -> None:
    places: list[tuple[int | str, str]] = [(2, "makes 12 tons"), (1, "makes 12 tons")]
    verdict = supported(1, *places) if made is supported else contradicted(1, *places)
    assert statuses(CASE.judged(saying(verdict)))[0] == status


@pytest.mark.parametrize("name", [2, "2", " 2 ", "[2]", "#2", "passage 2", "Passage 2"])
def test_a_passage_is_named_in_several_ways(name: int | str) -> None:
    assert statuses(CASE.judged(saying(supported(1, (name, "12 tons")))))[0] == "SUPPORTED"


def test_question_earlier_words_of_the_user_and_system_prompt_can_be_quoted() -> None:
    case = Case(
        "The plant in Linz is run by Ann. It has 40 people.",
        [],
        question="What about the plant in Linz?",
        conversation=(("user", "Ann runs the plant."), ("assistant", "It has 40 people.")),
        system="You are the assistant of a plant with 40 people.",
    )
    report = case.judged(
        saying(
            supported(1, ("q", "plant in Linz"), ("question", "Ann runs the plant")),
            supported(2, ("s", "with 40 people")),
        )
    )
    assert statuses(report) == ["SUPPORTED", "SUPPORTED"]
    assert [one.fact_id for one in report.claims[1].quotations] == ["system"]
    # What an assistant said earlier is no evidence.
    report = case.judged(saying(supported(2, ("q", "It has 40 people"))))
    assert statuses(report)[1] == "NOT_CHECKED"
