"""What the page shows: all of the receipt, as text, to everybody."""

from __future__ import annotations

import base64
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crp_integrations import Relay
from crp_integrations.adapters.observed_answers import observe_answer
from crp_integrations.errors import CRPError, SafetyHalt
from crp_integrations.policy.policy_text import policy_hash, render_policy
from crp_integrations.receipt.page import page
from crp_integrations.receipt.reconstruction import content_of
from crp_integrations.receipt.records import read, write
from crp_integrations.receipt.verify import verify
from crp_integrations.seals import sha256
from crp_integrations.stores.memory import MemoryStore
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.receipt.page.browser import Opened, emulate
from tests.receipt.page.conftest import Open
from tests.receipt.page.real import ANSWERS, HANDBOOK, JUDGE, KEY, QUESTIONS, session
from tests.receipt.page.samples import POLICY, Sample, handbook
from tests.relay.judges import MEASURED

SESSION = session()
SECTIONS = (
    "Answer",
    "Claims",
    "Risk and quality",
    "Token budget",
    "Facts that the model saw",
    "Facts left out",
    "Windows of the session",
    "Policy",
    "What made it",
    "Stated by the signer, not recomputed",
    "Checks",
)
HOSTILE = (
    "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
    "<svg onload=window.hit=3> <!-- <script> ]]> ${window.hit} &lt;b&gt; "
    "\u202egnp.exe\u2066 \u2028\u2029 \x00\x07 \u200b\ufeff \U000e0041 \\u003c 😀 end"
)
# WCAG 2.2, 1.4.3 and 1.4.11.
LEAST_CONTRAST = 4.5
LEAST_OF_GRAPHICS = 3.0


@pytest.fixture
def opened(show: Open) -> Opened:
    return show(handbook().receipt())


def test_every_part_of_the_receipt_is_there(opened: Opened) -> None:
    headings = opened.script(
        "return [...document.querySelectorAll('h2')].map((heading) => heading.textContent)"
    )
    assert tuple(headings) == SECTIONS
    for words in (
        "MEDIUM",
        "Tier B",
        "completeness 0.640 is below 0.700",
        "NUMBER_CHANGED",
        "six months",
        "14 candidates: 9 for budget, 5 for duplicate",
        "Raised by: distortion.",
        "warn-on MEDIUM",
        "found MEDIUM, wanted below MEDIUM",
        "gpt-4o-mini-2024-07-18",
        "o200k_base (exact)",
    ):
        assert words in opened.text, words


def test_a_claim_leads_to_the_words_behind_it(opened: Opened) -> None:
    led = opened.script(
        """
        return [...document.querySelectorAll(".answer a.claim")].map((claim) => {
          const target = document.querySelector(claim.getAttribute("href"));
          return [claim.firstChild.textContent, target.textContent, target.closest("li")?.id || ""];
        });
        """
    )
    assert led[0] == [
        "A worker can be posted for 12 months.",
        "posted for at most 12 months",
        "fact-1",
    ]
    assert led[3][1:] == ["A late notification costs 500 to 2,500 euros", "fact-2"]
    # Nothing stands behind these; they lead to their row.
    assert [entry[2] for entry in led[4:]] == ["", ""]
    assert all("Most firms use a consultant" in led[4][place] for place in (0, 1))


def test_a_claim_has_the_colour_of_its_status(show: Open) -> None:
    """A contradicted claim may be grounded: its words are in the context, with another number."""
    sample = Sample()
    sample.claim(
        "The employer may extend this once by eight months.",
        "CONTEXT_GROUNDED",
        (0, "the posting may be extended once by six months"),
        status="CONTRADICTED",
    )
    opened = show(sample.receipt())
    for place in (".answer a.claim", "#row-1 .word", ".legend .claim"):
        assert "contradicted" in opened.script(
            f"return document.querySelector('{place}').className"
        )
    assert opened.script("return document.querySelectorAll('.supported').length") == 0


def test_no_number_is_shown_with_parts_that_it_is_not_computed_from(opened: Opened) -> None:
    assert "from these" not in opened.text
    tiers = opened.script(r"return document.body.innerText.match(/[Tt]ier [SABCD]\b/g)")
    assert len({tier.lower() for tier in tiers}) == 1


def test_every_claim_is_told_apart_without_colour(opened: Opened) -> None:
    lines = opened.script(
        """
        return [...document.querySelectorAll(".answer a.claim")].map((claim) => {
          const style = getComputedStyle(claim);
          return style.textDecorationStyle + " " + style.textDecorationThickness;
        });
        """
    )
    assert [line.split()[0] for line in lines] == [
        "solid", "wavy", "solid", "dashed", "dotted", "solid",
    ]  # fmt: skip
    assert lines[0] != lines[5]


def test_offsets_count_characters_beyond_the_first_plane(show: Open) -> None:
    sample = Sample(answer="😀😀 The sum is 12 €. 𝒳 is last.", facts=["𝔸𝔸 the sum is 12 € indeed"])
    sample.included = 1
    sample.claim("The sum is 12 €.", "CONTEXT_GROUNDED", (0, "sum is 12 €"))
    opened = show(sample.receipt())
    assert opened.state == "not recomputed", opened.place
    assert (
        opened.script("return document.querySelector('.claim').firstChild.data")
        == "The sum is 12 €."
    )
    assert opened.script("return document.querySelector('.spot').textContent") == "sum is 12 €"


def test_hostile_texts_stay_text(show: Open) -> None:
    sample = Sample(
        question=HOSTILE,
        facts=[HOSTILE, "javascript:window.hit=4", HOSTILE],
        answer=f"First. {HOSTILE} Last.",
        included=2,
        source='"><script>window.hit = 5</script>',
    )
    sample.claim(HOSTILE, "CONTEXT_GROUNDED", (0, HOSTILE))
    sample.content["policy"] = {"text": HOSTILE, "hash": sha256(HOSTILE), "reason": HOSTILE}
    sample.content["model"] = {
        "asked": HOSTILE,
        "tokenizer": {"identity": HOSTILE, "exactness": HOSTILE},
    }
    opened = show(sample.receipt())
    assert opened.state == "differs", opened.place
    assert opened.script("return window.hit === undefined")
    assert opened.console() == []
    assert len(opened.requests()) == 1
    assert (
        opened.script("return document.querySelectorAll('img, iframe, object, body script').length")
        == 0
    )
    answer = opened.script("return document.querySelector('.answer').textContent")
    assert "</script><script>window.hit = 1</script>" in answer
    # What steers the text around it is named instead.
    for name in ("U+202E", "U+2066", "U+2028", "U+0000", "U+200B", "U+E0041"):
        assert name in answer
    assert "\u202e" not in opened.text
    assert "\u202e" not in opened.driver.title
    assert opened.script(
        "return [...document.querySelectorAll('*')].every((one) => one.getAttributeNames()"
        ".every((name) => !name.startsWith('on') && !/^javascript:/i.test(one.getAttribute(name))))"
    )


def test_nothing_of_the_receipt_stands_in_the_page_as_it_is() -> None:
    sample = Sample(question=HOSTILE, facts=[HOSTILE], answer=HOSTILE, included=1)
    sample.content["asker"] = HOSTILE
    text = page(sample.receipt())
    assert "window.hit" not in text
    assert text.count("</script>") == 2
    # What the page adds to the receipt, which grows by a third in base64.
    assert len(text) - len(base64.b64encode(sample.receipt())) < 152_000


def test_the_samples_are_receipts_as_the_package_writes_them() -> None:
    content_of(read(handbook().receipt(redacted=(1,))))


def test_an_answer_of_somebody_elses_chain_is_shown_beside_its_context(show: Open) -> None:
    measured = {"dpe": MEASURED, "embedder": HashEmbedder()}
    with Relay.open(MemoryStore(), key=KEY, clock=NOON, **measured) as relay:
        seen = observe_answer(relay, ANSWERS[-1], list(HANDBOOK[:4]), QUESTIONS[-1])
    assert seen.receipt is not None
    opened = show(write(seen.receipt))
    assert opened.state == "holds", opened.place
    assert "4 facts in order of the context" in opened.text
    assert "No envelope was packed for this answer" in opened.text
    assert "NUMBER_CHANGED, context has six months" in opened.text
    led = opened.script("return document.querySelector('.answer a.claim').getAttribute('href')")
    assert opened.script(f"return document.querySelector('{led}').textContent") == HANDBOOK[0]


def test_an_answer_that_was_withheld_says_so(show: Open) -> None:
    model = ScriptedModel(ANSWERS[-1])
    with Relay.open(MemoryStore(), key=KEY, clock=NOON, models=model, judge=JUDGE) as relay:
        relay.fabric.add(list(HANDBOOK))
        with pytest.raises(SafetyHalt):
            relay.ask(QUESTIONS[-1], model="gpt-4o", policy="halt-on HIGH")
        receipt = relay.receipt(relay.receipts().ids()[-1])
    assert receipt is not None
    opened = show(write(receipt))
    assert opened.state == "holds", opened.place
    assert "Answer, withheld" in opened.text
    assert "halt-on HIGH" in opened.text


@pytest.mark.parametrize(
    ("script", "asking", "outcome"),
    [
        ((RuntimeError("gone"),), {}, "failed"),
        ((ANSWERS[-1],), {"cache": "only-if-ckf", "query": "Who won the chess match?"}, "refused"),
    ],
)
def test_a_window_without_an_answer_says_so(
    show: Open, script: tuple[Any, ...], asking: dict[str, Any], outcome: str
) -> None:
    said = {"query": QUESTIONS[-1], "model": "gpt-4o", "policy": "halt-on HIGH", **asking}
    model = ScriptedModel(*script)
    with Relay.open(MemoryStore(), key=KEY, clock=NOON, models=model, judge=JUDGE) as relay:
        relay.fabric.add(list(HANDBOOK))
        with pytest.raises((RuntimeError, CRPError)):
            relay.ask(**said)
        receipt = relay.receipt(relay.receipts().ids()[-1])
    assert receipt is not None
    opened = show(write(receipt))
    assert opened.state == "holds", opened.place
    for words in (f"No answer, {outcome}", "There is no text of an answer.", "Nothing was judged."):
        assert words in opened.text
    # Nothing was found wrong with what is not there, and nothing right.
    tiles = opened.script(
        "return [...document.querySelectorAll('.tiles li')].map((tile) => tile.textContent)"
    )
    assert [tile for tile in tiles if "no claim" in tile] == [
        "Grounded–no claim",
        "Checked–no claim",
    ]
    assert "undefined" not in opened.text


def test_an_answer_of_megabytes_is_shown_and_verifies(show: Open) -> None:
    answer = "The pump delivers ten litres. " * 200_000
    opened = show(Sample(answer=answer).receipt())
    assert opened.state == "not recomputed", opened.place
    shown = "return document.querySelector('.answer').textContent.length"
    assert opened.script(shown) == len(answer)


def test_a_fact_that_was_shown_in_part_is_shown_so(show: Open) -> None:
    with Relay.open(MemoryStore(), key=KEY, clock=NOON) as relay:
        relay.fabric.add([" ".join(HANDBOOK), *HANDBOOK[:3]])
        answer = relay.ask(
            "What does a late notification cost?", model="extractive", budget_tokens=120
        )
        receipt = relay.receipt(answer.receipt_id)
    assert receipt is not None
    parted = [fact.content for fact in answer.envelope.facts if fact.spans]
    assert parted, "the sample no longer fits in part"
    opened = show(write(receipt))
    assert opened.state == "holds", opened.place
    quotes = opened.script(
        "return [...document.querySelectorAll('.fact blockquote')].map((one) => one.textContent)"
    )
    assert quotes == [fact.content for fact in answer.envelope.facts]
    assert "shown in part" in opened.text


def test_equal_receipts_make_equal_pages() -> None:
    assert page(handbook().receipt()) == page(handbook().receipt())


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ({"schema": "receipt-content/2"}, "broken"),
        ({"envelope": {"facts": [{"at": 99}]}}, "differs"),
    ],
    ids=["newer", "odd"],
)
def test_a_content_that_the_page_cannot_read_is_not_green(
    show: Open, content: dict[str, Any], word: str
) -> None:
    sample = handbook()
    sample.content = content
    assert (show(sample.receipt()).state, verify(sample.receipt()).word) == (word, word)


def test_a_receipt_of_a_window_without_context_and_claims(show: Open) -> None:
    sample = Sample(facts=[], answer="", included=0)
    sample.content["policy"] = {
        "text": render_policy(POLICY),
        "hash": policy_hash(POLICY),
        "safety_budget": 0,
    }
    opened = show(sample.receipt())
    assert opened.state == "not recomputed", opened.place
    for words in (
        "No claim was found in it",
        "Every candidate was included",
        "Nothing was judged",
    ):
        assert words in opened.text
    # The windows that it follows are known by their seals alone.
    assert opened.text.count("known by its seal alone") == 2


def test_a_real_session_is_a_graph_of_its_windows(show: Open) -> None:
    opened = show(SESSION[2], SESSION[0], SESSION[1])
    assert opened.state == "holds", opened.place
    boxes = opened.script(
        "return [...document.querySelectorAll('.graph a')].map((one) => one.getAttribute('aria-label'))"
    )
    assert boxes == [
        "Window 1, follows 0 windows",
        "Window 2, follows 1 window",
        "Window 3, this receipt, follows 1 window",
    ]
    assert opened.script("return document.querySelectorAll('.graph .edge').length") == 2
    assert "released, risk LOW, tier" in opened.text
    assert "2 further receipts of the session" in opened.text
    # Without the receipts of the others their seals remain.
    alone = show(SESSION[2])
    assert alone.state == "holds"
    assert "known by its seal alone" in alone.text


def test_a_receipt_of_another_window_that_does_not_hold_is_red(show: Open) -> None:
    changed = SESSION[0].replace(b"Which law", b"Which flaw")
    opened = show(SESSION[2], changed)
    assert opened.state == "broken"
    assert "Other windows: receipt of window crp_win_" in opened.place
    assert show(SESSION[2], SESSION[2]).state == "broken"
    assert show(SESSION[2], handbook().receipt()).state == "broken"


def test_the_receipt_can_be_saved_as_it_was(show: Open, tmp_path: Path) -> None:
    data = handbook().receipt()
    opened = show(data)
    opened.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    opened.driver.find_element("xpath", "//button[text()='Save the receipt']").click()
    from selenium.webdriver.support.wait import WebDriverWait

    saved = tmp_path / "receipt.json"
    WebDriverWait(opened.driver, 30).until(lambda _: saved.is_file() and saved.stat().st_size)
    assert saved.read_bytes() == data


def test_the_keyboard_reaches_everything(opened: Opened) -> None:
    from selenium.webdriver.common.keys import Keys

    wanted = opened.script(
        "return document.querySelectorAll('a[href], button, [tabindex=\"0\"]').length"
    )
    body = opened.driver.find_element("tag name", "body")
    seen = []
    for _ in range(wanted):
        body.send_keys(Keys.TAB)
        seen.append(
            opened.script(
                """
                const here = document.activeElement;
                const style = getComputedStyle(here);
                const box = here.querySelector("rect");
                const seen = style.outlineStyle !== "none" && style.outlineWidth !== "0px"
                  || box && getComputedStyle(box).strokeWidth === "4px";
                return [here.textContent.slice(0, 30), here.namespaceURI.includes("svg"), Boolean(seen)];
                """
            )
        )
    assert seen[0][0] == "Skip to the answer"
    assert [text for text, _, _ in seen[1:3]] == ["Check again", "Save the receipt"]
    # All windows of the graph are among them, and each shows that it has the focus.
    assert sum(graph for _, graph, _ in seen) == 3
    assert all(outlined for _, _, outlined in seen), [entry for entry in seen if not entry[2]]


def test_enter_on_a_claim_goes_to_the_words_behind_it_and_marks_them(opened: Opened) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.driver.find_element("css selector", "#claim-3").send_keys(Keys.ENTER)
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(opened.driver, 30).until(
        lambda _: opened.script("return CSS.highlights.has('behind')")
    )
    assert opened.script("return location.hash") == "#spot-3-1"
    marked = opened.script(
        "return [...CSS.highlights.get('behind')].map((range) => range.toString())"
    )
    assert marked == [
        "An employer must notify the authority before the posting begins.",
        "The notification names the site",
    ]
    assert opened.state == "not recomputed"


def test_a_screen_reader_is_told_everything(opened: Opened) -> None:
    opened.driver.execute_cdp_cmd("Accessibility.enable", {})
    nodes = opened.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named: dict[str, list[str]] = {}
    for node in nodes:
        if not node.get("ignored"):
            role = node.get("role", {}).get("value", "")
            named.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    for landmark in ("banner", "main", "contentinfo", "status"):
        assert len(named.get(landmark, [])) == 1, landmark
    for role in ("link", "button", "region", "image"):
        assert named[role], role
        assert all(name.strip() for name in named[role]), role
    assert any("claim 2: contradicted" in name for name in named["link"])
    assert any(
        name.startswith("Window 3, this receipt, follows 2 windows") for name in named["link"]
    )
    assert any("tokens: 4 facts with" in name for name in named["image"])
    levels = opened.script(
        "return [...document.querySelectorAll('h1, h2, h3')].map((one) => Number(one.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert opened.script(
        "return [...document.querySelectorAll('table')].every((one) => one.caption"
        " && one.querySelector('tbody th[scope=row]') && one.querySelector('thead th[scope=col]'))"
    )
    assert opened.script(
        "const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);"
        "return ids.length === new Set(ids).size && [...document.querySelectorAll('a[href^=\"#\"]')]"
        ".every((one) => document.getElementById(one.getAttribute('href').slice(1)))"
    )


CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["holds", "broken", "cannot"])
def test_contrasts(show: Open, driver: Any, scheme: str, state: str) -> None:
    data = handbook().receipt(redacted=(3,))
    show(data.replace(b"eight months", b"seven months") if state == "broken" else data)
    emulate(driver, scheme=scheme)
    if state == "cannot":
        driver.execute_script("document.getElementById('badge').className = 'badge'")
    found = driver.execute_script(CONTRASTS)
    assert len(found["text"]) > 50
    assert min(entry[0] for entry in found["text"]) >= LEAST_CONTRAST, sorted(found["text"])[:3]
    assert min(entry[0] for entry in found["graphics"]) >= LEAST_OF_GRAPHICS, sorted(
        found["graphics"]
    )


def test_paper_has_all_of_it(opened: Opened, driver: Any) -> None:
    emulate(driver, media="print")
    try:
        cut = opened.script(
            """
            return [...document.querySelectorAll("main *")].filter((one) =>
              one.scrollHeight > one.clientHeight + 2 && getComputedStyle(one).overflowY !== "visible"
              && !one.closest(".hear") && one.clientHeight > 1).map((one) => one.outerHTML.slice(0, 80));
            """
        )
        assert cut == []
        assert not driver.find_element("xpath", "//button[text()='Check again']").is_displayed()
        # What of an A4 page is left between the margins.
        _width(driver, 670)
        assert opened.script("return document.documentElement.scrollWidth") <= 670
        made = driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
        assert len(made["data"]) > 20_000
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        emulate(driver)


def _width(driver: Any, width: int) -> None:
    size = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.mark.parametrize("width", [360, 400])
def test_a_narrow_screen_cuts_nothing(show: Open, driver: Any, width: int) -> None:
    opened = show(SESSION[2], SESSION[0])
    _width(driver, width)
    try:
        assert opened.script("return document.documentElement.scrollWidth") <= width
        cut = opened.script(
            """
            return [...document.body.querySelectorAll("*:not(.hear)")].filter((one) =>
              one.getBoundingClientRect().right > innerWidth
              || (one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1))
              .map((one) => one.outerHTML.slice(0, 80));
            """
        )
        assert cut == []
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
