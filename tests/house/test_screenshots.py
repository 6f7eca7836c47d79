"""Reports and envelopes in a real browser: they fit, can be read, and nothing in them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crp_integrations import examine
from tests.dpe.test_report_html import HOSTILE
from tests.house.screenshots import FOLDER, PASSAGES, envelope_page, report_page
from tests.receipt.page.browser import Opened, emulate
from tests.receipt.page.conftest import driver as driver
from tests.receipt.page.test_shown import CONTRASTS, LEAST_CONTRAST

LONG = "Donaudampfschifffahrtsgesellschaftskapitän" * 12
ARABIC = "المفاعل ينتج 512 ميغاواط. "
PAGES = {
    "report": report_page,
    "envelope": envelope_page,
    "hostile": lambda: examine(
        f"It is {HOSTILE} 512 megawatts. {LONG}. {ARABIC}", [f"{HOSTILE} {LONG}", ARABIC]
    ).to_html(),
}


def opened(driver: Any, folder: Path, name: str, width: int, scheme: str = "light") -> Opened:
    path = folder / "page.html"
    path.write_text(PAGES[name](), encoding="utf-8")
    size = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    emulate(driver, scheme=scheme)
    return Opened(driver, path)


@pytest.fixture(autouse=True)
def _reset(driver: Any) -> Any:
    yield
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    emulate(driver)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [400, 1_000])
def test_a_page_fits_and_runs_nothing(driver: Any, tmp_path: Path, name: str, width: int) -> None:
    page = opened(driver, tmp_path, name, width)
    assert page.script("return document.documentElement.scrollWidth") <= width
    assert page.script("return window.hit === undefined")
    assert page.console() == []
    assert len(page.requests()) == 1
    assert page.script("return document.querySelectorAll('script, img, svg, a').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["report", "envelope"])
def test_every_text_has_enough_contrast(
    driver: Any, tmp_path: Path, name: str, scheme: str
) -> None:
    found = opened(driver, tmp_path, name, 1_000, scheme).script(CONTRASTS)
    assert min(entry[0] for entry in found["text"]) >= LEAST_CONTRAST, sorted(found["text"])[:3]


def test_right_to_left_text_starts_at_the_right(driver: Any, tmp_path: Path) -> None:
    page = opened(driver, tmp_path, "hostile", 1_000)
    directions = page.script(
        "return [...document.querySelectorAll('p.crp-text')].filter((one) =>"
        " one.textContent.startsWith('المفاعل')).map((one) => getComputedStyle(one).direction)"
    )
    assert directions and set(directions) == {"rtl"}


def test_a_claim_and_its_evidence_stand_side_by_side_where_there_is_room(
    driver: Any, tmp_path: Path
) -> None:
    for width, beside in ((1_000, True), (400, False)):
        page = opened(driver, tmp_path, "report", width)
        left, right = page.script(
            "const [a, b] = document.querySelector('.crp-claims li').children;"
            "return [a, b].map((one) => [one.getBoundingClientRect().top,"
            " one.getBoundingClientRect().left])"
        )
        assert (left[0] == right[0] and left[1] < right[1]) is beside


def test_on_paper_everything_is_unfolded(driver: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    claim = "Northfield Energy plans to build reactor number {} in Denmark. "
    report = examine("".join(claim.format(n) for n in range(60)), PASSAGES)
    path.write_text(report.to_html().replace("<details open>", "<details>"), encoding="utf-8")
    page = Opened(driver, path)
    height = "return document.querySelector('.crp-view').getBoundingClientRect().height"
    folded = page.script(height)
    emulate(driver, media="print")
    assert page.script(height) > 5 * folded


@pytest.mark.parametrize("name", ["report", "envelope"])
def test_the_pictures_are_small(name: str) -> None:
    for scheme in ("light", "dark"):
        picture = FOLDER / f"{name}-{scheme}.png"
        assert 10_000 < picture.stat().st_size < 120_000
