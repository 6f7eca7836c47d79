"""What typesetting did to a text is aside when words are looked for and values read."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.folded_text import Folded, locate, undo_typesetting
from crp_integrations.language.quantities import quantities
from crp_integrations.language.text import fold_case_and_space

WORD = st.from_regex(r"[a-zäöü]{2,8}", fullmatch=True).filter(
    lambda word: word not in ("and", "or", "nor", "to", "und", "oder", "bis", "noch", "et", "ou")
)
BREAK = st.sampled_from(["\n", "\r\n", " ", "\n   ", " \n", "\u00a0"])


@given(WORD, WORD, WORD, BREAK, st.sampled_from("-\u2010"))
def test_a_word_cut_at_a_line_end_is_found_whole_and_with_its_hyphen(
    first: str, second: str, other: str, gap: str, hyphen: str
) -> None:
    cut = f"a {first}{hyphen}{gap}{second} here"
    for written in (f"{first}{second}", f"{first}-{second}", f"{first}{hyphen}{gap}{second}"):
        assert locate(written, Folded(cut)) == (2, len(cut) - 5)
        assert locate(f"{first}{hyphen}{gap}{second}", Folded(f"a {written} here")) is not None
        assert locate(f"a {written} here", Folded(cut)) == (0, len(cut))
    # Half of it is none of its words.
    if other not in f"{first} a here":
        assert locate(other, Folded(cut)) in (
            None,
            *([(2, len(cut) - 5)] * (other == first + second)),
        )


@given(WORD, WORD, BREAK)
def test_a_name_and_a_figure_keep_their_hyphen(first: str, second: str, gap: str) -> None:
    for one, other in ((first.title(), second.title()), ("2019", "2021"), ("COVID", "19")):
        cut = Folded(f"a {one}-{gap}{other} here")
        assert locate(f"{one}-{other}", cut) is not None
        assert locate(f"{one}{other}", cut) is None


@pytest.mark.parametrize(
    "listed", ["short- and long-term", "Ein- und Ausgang", "- a\n- b", "a - b"]
)
def test_other_hyphens_stay(listed: str) -> None:
    assert undo_typesetting(listed) is None


@pytest.mark.parametrize(
    ("text", "quotation"),
    [
        ("R&amp;D is ours", "R&D"),
        ("R&D is ours", "R&amp;D"),
        ("it&#39;s 5&nbsp;km &#x2014; &ldquo;far&rdquo;", "it's 5 km — “far”"),
        ("caf&eacute; ½ and &frac12;", "café ½ and ½"),
        (r"cost $4.2\,\text{million}$ then", "4.2 million"),
        (r"cost \$4.2\,\text{million} then", "$4.2 million"),
        (r"cost $\$4.2\,\mathrm{million}$ then", "$4.2 million"),
        (r"a share of 12\% and R\&D", "12% and R&D"),
        (r"$4{,}200$ tons", "4,200 tons"),
        (r"\textbf{Total {net}} is 5", "Total {net} is 5"),
        (r"$3 \times 4$", "3 × 4"),
        (r"at $20\,^\circ\text{C}$", "20 °C"),
        ("IBAN DE89 3704 0044 0532 0130 00 is", "DE89370400440532013000"),
        ("IBAN DE89370400440532013000 is", "DE89 3704 0044 0532 0130 00"),
        ("GB29 NWBK 6016 1331 9268 19", "GB29NWBK60161331926819"),
        ("DE89 3704 0044", "DE8937040044"),
        ("call +49 30 1234567 now", "+49301234567"),
        ("call +1 (212) 555-0100 now", "+12125550100"),
        ("2021,310,Linz", "310"),
        ("2021,310,Linz", "2021"),
        ("costs $5 and $6", "$5 and $6"),
        ("a {b} &nope; \\x", "a {b} &nope; \\x"),
    ],
)
def test_typesetting_aside_it_stands_there(text: str, quotation: str) -> None:
    assert locate(quotation, Folded(text)) is not None


@pytest.mark.parametrize(
    ("text", "quotation"),
    [
        ("R&amp;D", "amp"),
        (r"$4.2\,\text{million}$", "2 million"),
        (r"$4{,}200$", "200"),
        ("DE89 3704 0044", "3704"),
        ("un-\nsafe", "safe"),
        ("un-\nsafe", "un"),
        ("1,310 tons", "310 tons"),
        ("in 2019 2020 2021 2022", "2019202020212022"),
        ("costs $5", "£5"),
    ],
)
def test_a_cut_one_does_not(text: str, quotation: str) -> None:
    assert locate(quotation, Folded(text)) is None


@pytest.mark.parametrize(
    ("text", "value", "unit", "written"),
    [
        (r"about $4.2\,\text{million}$ people", "4200000.0", "", r"4.2\,\text{million"),
        ("5&nbsp;km", "5", "km", "5&nbsp;km"),
        (r"12\% of it", "12", "%", r"12\%"),
        ("4{,}200 kg", "4200", "kg", "4{,}200 kg"),
        ("4,2 Liter", "4.2", "l", "4,2 Liter"),
        ("EUR 4,50", "4.50", "EUR", "EUR 4,50"),
        ("12,90 francs", "12.90", "CHF", "12,90 francs"),
        ("20 kilo-\nmetres", "20", "km", "20 kilo-\nmetres"),
    ],
)
def test_values_are_read_with_their_offsets(text: str, value: str, unit: str, written: str) -> None:
    (found,) = quantities(text)
    assert (str(found.value), found.unit, found.text) == (value, unit, written)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("the east one is closed", 0),
        ("A newer one opened", 0),
        ("the most recent one", 0),
        ("One should wait", 0),
        ("The house has one door", 1),
        ("the one hour limit", 1),
        ("one for age", 1),
    ],
)
def test_a_pronoun_is_no_number(text: str, counts: int) -> None:
    assert len(quantities(text)) == counts


@given(st.text(alphabet="a-\n &;#3{}$\\,text1\u00ad\u2027", max_size=60))
def test_offsets_lead_back(text: str) -> None:
    unset = undo_typesetting(text)
    if unset is not None:
        assert len(unset.text) == len(unset.starts) == len(unset.ends)
        places = list(zip(unset.starts, unset.ends, strict=True))
        assert all(0 <= start < end <= len(text) for start, end in places)
        assert places == sorted(places)
    even = fold_case_and_space(text)
    for place in range(len(even.text)):
        span = even.span(place, place + 1)
        assert 0 <= span.start < span.end <= len(text)


@pytest.mark.parametrize(
    "piece", ["$a\\b ", "\\text{", "&amp", "a-\n", "DE89 3704 ", "{", "+49 30 ", "- "]
)
def test_the_work_grows_with_the_text(piece: str) -> None:
    def seconds(times: int) -> float:
        text = piece * times
        started = time.process_time()
        Folded(text)
        return time.process_time() - started

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.002)
