"""Names and identifiers by shape."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.language.identifiers import identifiers
from crp_integrations.language.names import names


def found(text: str) -> list[str]:
    return [name.text for name in names(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "In London, Dr. Jane Smith of Acme Corp met NATO staff.",
            ["London", "Jane Smith of Acme Corp", "NATO"],
        ),
        ("Google announced a deal with the Bank of England.", ["Google", "Bank of England"]),
        ("Revenue rose. Sales fell. Users can click. However, it works.", []),
        (
            "According to NIST, J. K. Rowling and AT&T use iPhone.",
            ["NIST", "J. K. Rowling", "AT&T", "iPhone"],
        ),
        ("Apple's revenue grew; EU-based firms lost.", ["Apple", "EU"]),
        ("The US-led coalition met.", ["US"]),
        ("It is in Goleta, CA. Specializing in sushi, it was open.", ["Goleta", "CA"]),
        ("Customer reviews are mixed.", []),
        ("Soak tarnished silver in water.", []),
        ("Wash tarnished silver in water.", []),
        ("THE POLICY APPLIES TO ALL", []),
        ("I think I'm fine.", []),
        ("Ångström met Müller in Москва.", ["Ångström", "Müller", "Москва"]),
        ("The firm met on Monday.", ["Monday"]),
        ("It began on 12 March 2024.", []),
    ],
)
def test_names(text, expected):
    assert found(text) == expected


def test_identifiers():
    text = (
        "GPT-4o, COVID-19, v1.2.3, Article 22(1), Articles 9-15, §7.4, Section 7.4. 5G CVE-2024-1234 "
        "Regulation (EU) 2016/679, ISO/IEC 27001:2022 at https://x.y/z?a=1). or a.b@c.de"
    )
    assert [span.of(text) for span in identifiers(text)] == [
        "GPT-4o",
        "COVID-19",
        "v1.2.3",
        "Article 22(1)",
        "Articles 9-15",
        "§7.4",
        "Section 7.4",
        "5G",
        "CVE-2024-1234",
        "Regulation (EU) 2016/679",
        "ISO/IEC 27001:2022",
        "https://x.y/z?a=1",
        "a.b@c.de",
    ]


@pytest.mark.parametrize(
    "text", ["15-year", "mid-2024", "10k", "5kg", "3rd", "1.234.567", "12.03.2024", "2x"]
)
def test_what_is_no_identifier(text):
    assert identifiers(text) == ()


@given(
    st.text(alphabet=st.one_of(st.characters(), st.sampled_from("AbcDe .'-&/@:12§")), max_size=80)
)
def test_offsets_are_exact_on_any_text(text):
    place = 0
    for name in names(text):
        assert place <= name.start < name.end
        assert text[name.start : name.end] == name.text
        place = name.end
