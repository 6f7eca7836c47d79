"""What a reader cannot see is found; what joins emoji and letters is spared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.hidden_text import hidden_text


def _tags(words: str) -> str:
    return "".join(chr(0xE0000 + ord(sign)) for sign in words)


def _selectors(data: bytes) -> str:
    return "".join(chr(0xFE00 + one if one < 16 else 0xE00F0 + one) for one in data)


def _bits(words: str, signs: str = "\u200b\u200c") -> str:
    return "".join(signs[int(bit)] for one in words for bit in f"{ord(one):08b}")


WORDS = st.text(alphabet="abcdefghij klmnop", min_size=1, max_size=12)


@given(WORDS)
def test_words_in_tags_selectors_and_bits_are_decoded(words: str) -> None:
    for hidden, kind in (
        (_tags(words), "tags"),
        (_selectors(b"!" + words.encode()), "variation selectors"),
        (_bits(words), "zero width"),
    ):
        (found,) = hidden_text(f"It is so{hidden}.")
        assert (found.start, found.end, found.kind) == (8, 8 + len(hidden), kind)
        assert kind == "zero width" or found.decoded.lstrip("!") == words


def test_bits_are_decoded_whichever_is_one_and_however_scattered() -> None:
    assert hidden_text("x" + _bits("pay now", "\u200d\u2060"))[0].decoded == "pay now"
    parted = "\u200d".join(_bits(one) for one in "pay")
    assert hidden_text("x" + parted)[0].decoded == "pay"
    text = "".join(f"w{sign}" for sign in _bits("pay"))
    assert [one.decoded for one in hidden_text(text)] == ["pay"]
    assert hidden_text("x" + _tags("a\x01b"))[0].decoded == "ab"


def test_other_kinds() -> None:
    assert [one.kind for one in hidden_text("pay \u202e05\u202c now")] == ["bidirectional override"]
    assert [one.kind for one in hidden_text("pay \u206705\u2069 now")] == ["bidirectional override"]
    assert [one.kind for one in hidden_text("H\ufe01e\ufe02")] == ["variation selectors"] * 2


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "👩\u200d👩\u200d👧\u200d👦 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈 🕵🏻\u200d♂\ufe0f 5\ufe0f⃣ ☎\ufe0e "
        * 5,
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "می\u200cخواهم کتاب\u200cها را می\u200cبینم " * 5,
        "क्\u200dष क्\u200cष ශ්\u200dරී " * 8,
        "שלום\u200f (a) \u2067עברית\u2069 \u202bשלום\u202c \u200eabc\u200e",
        "ภาษา\u200bไทย",
        "a\u200bb word\u2060joiner soft\u00adhyphen \ufeffBOM",
        "\u2068Ann\u2069 has \u20682\u2069 cats",
        "葛\U000e0100 ︎",
    ],
)
def test_joiners_and_direction_marks_are_spared(text: str) -> None:
    assert hidden_text(text) == ()


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    for one in hidden_text(text):
        assert 0 <= one.start < one.end <= len(text)
        assert one.decoded.isascii()
        assert one.decoded.isprintable()
