"""A report as HTML: complete, in order, and text stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from crp_integrations import Fact, Relay, Report, examine, pack
from crp_integrations.markup import escaped
from crp_integrations.stores.memory import MemoryStore
from crp_integrations.vocabulary import ClaimStatus
from tests.doubles import ScriptedModel
from tests.house.screenshots import ANSWER, PASSAGES, QUESTION
from tests.judges import NAME, judge_double, named

HOSTILE = (
    "<script>window.hit = 1</script><img src=x onerror='window.hit = 2'> javascript:hit() "
    '"></blockquote></div><style>*{display:none}</style> \u202e\u2066 \x00\x07\x1b[2J \u2028 &lt;b&gt;'
)


class _Tags(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(html: str) -> _Tags:
    """A page that is well-formed and holds nothing that runs or is fetched."""
    page = _Tags(html)
    assert page.open == []
    for tag, attributes in page.tags:
        assert tag not in ("script", "img", "svg", "iframe", "link", "object", "form", "a"), tag
        assert not [one for one in attributes if one.startswith("on") or one in ("src", "href")]
    html.encode("utf-8")
    return page


@pytest.fixture(scope="module")
def report() -> Report:
    return examine(ANSWER, PASSAGES, QUESTION)


def test_every_claim_stands_in_order_beside_its_evidence(report: Report) -> None:
    page = read(report.to_html(PASSAGES))
    assert page.text.startswith(
        "Answer report HIGH risk score 0.560 · 2 of 6 claims read: 1 supported, 1 wrong; 4 unread"
    )
    places = [page.text.rindex(claim.text.rstrip(".")) for claim in report.claims]
    assert places == sorted(places)
    for status in {claim.status for claim in report.claims}:
        assert status.value.replace("_", " ").lower() in page.text
    for reason in report.reasons:
        assert reason in page.text
    html = report.to_html(PASSAGES)
    assert 'delivers <mark class="crp-no">512 megawatts</mark>.' in html
    assert "4 March 2019 and <mark>delivers 412 megawatts.</mark>" in html
    assert "number changed: the context has “412 megawatts”" in page.text
    assert "4 claims, marked above" in page.text
    assert "Personal data of these kinds: biometric, criminal record" in page.text
    assert "No judge was asked: none is configured" in page.text


def test_without_the_context_the_quotation_stands_alone(report: Report) -> None:
    shown = report._repr_html_()
    page = read(shown)
    assert "<mark>delivers 412 megawatts.</mark></p>" in shown
    assert "passage 1" in page.text
    assert "4 March 2019" not in page.text


def test_facts_and_an_envelope_name_the_same_passages(report: Report) -> None:
    facts = [Fact(content=text) for text in PASSAGES]
    seen = examine(ANSWER, facts, QUESTION).to_html(facts)
    # Facts have an importance, so omissions are looked for.
    omissions = "<li>[^<]*<span[^>]*>Omissions: .*?</li>"
    assert seen == re.sub(omissions, "", report.to_html(PASSAGES))
    envelope = pack(QUESTION, PASSAGES, model="gpt-4o")
    shown = examine(ANSWER, envelope).to_html(envelope)
    assert "<mark>delivers 412 megawatts.</mark>" in shown


def test_a_judge_and_its_reasons_are_shown() -> None:
    with judge_double() as double:
        report = examine(ANSWER, PASSAGES, QUESTION, judge=named(double))
    html = report.to_html(PASSAGES)
    page = read(html)
    assert f"by judge {NAME}" in page.text
    assert "The passage does not say 512." in page.text
    assert f"Judge {NAME}: 1 call" in page.text
    assert f"<mark>{PASSAGES[0][:-1]}</mark>." in html


def test_strangers_texts_stay_texts() -> None:
    answer = f"The plant {HOSTILE} delivers 512 megawatts. {HOSTILE}"
    context = [f"The plant {HOSTILE} delivers 412 megawatts. {HOSTILE}"]
    report = examine(answer, context, HOSTILE)
    for html in (report.to_html(context), report._repr_html_()):
        page = read(html)
        assert "<script>window.hit = 1</script>" in page.text
        for sign in ("U+202E", "U+2066", "U+0000", "U+001B", "U+2028"):
            assert sign in page.text
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2066\u2028]", html)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\ud800", "U+D800"),
        ("a\r\nb\tc", "a\nb\tc"),
        ("می‌خواهم", "می‌خواهم"),
        ("\U000e0041", "U+E0041"),
        ("'\"", "&#x27;&quot;"),
    ],
)
def test_signs_that_nobody_sees_are_named(text: str, shown: str) -> None:
    assert re.sub("<[^>]*>", "", escaped(text)) == shown
    escaped(text).encode("utf-8")


def test_a_report_that_was_read_with_a_lone_surrogate_is_shown(report: Report) -> None:
    odd = report.claims[0].model_copy(update={"text": "lone \ud800 half", "wrong": None})
    changed = report.model_copy(update={"claims": (odd,), "reasons": ("\udfff",)})
    assert "lone U+D800 half" in read(changed.to_html()).text


@pytest.mark.parametrize("flagged", [{}, {130}, set(range(500))])
def test_a_long_report_is_folded_and_complete(report: Report, flagged: set[int]) -> None:
    fine = next(one for one in report.claims if one.status is ClaimStatus.SUPPORTED)
    bad = next(one for one in report.claims if one.status is ClaimStatus.CONTRADICTED)
    claims = [
        (bad if n in flagged else fine).model_copy(
            update={"text": f"Claim number {n}.", "wrong": None}
        )
        for n in range(500)
    ]
    page = read(report.model_copy(update={"claims": tuple(claims)}).to_html())
    folds = [attributes for tag, attributes in page.tags if tag == "details"]
    assert len(folds) == 20
    assert sum("open" in one for one in folds) == min(4, len(flagged))
    assert re.findall(r"Claim number (\d+)\.", page.text) == [str(n) for n in range(500)]
    assert "Claims 126 to 150" in page.text


def test_an_answer_without_claims_says_so() -> None:
    assert "The answer makes no claim." in read(examine("", ["A fact."]).to_html()).text


def test_an_answer_is_shown_with_report_and_envelope() -> None:
    with Relay.open(MemoryStore(), models=ScriptedModel(ANSWER)) as relay:
        relay.fabric.add(list(PASSAGES))
        answer = relay.ask(QUESTION, model="gpt-4o")
    shown = answer._repr_html_()
    page = read(shown)
    assert page.text.startswith(ANSWER[:40])
    assert '<mark class="crp-no">512 megawatts</mark>' in shown
    assert "HIGH risk" in page.text
    assert "What the model saw" in page.text
    assert read(answer.to_html()).text.endswith(page.text)
