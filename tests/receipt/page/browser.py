"""A real Chromium, driven from here: opens a page from disk and tells what happened."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
DRIVER = shutil.which("chromedriver") or ""
# Seconds that a page may take to say what it found; it only ends a page that never does.
PATIENCE = 60
ENDED = """
const badge = document.getElementById("badge");
return document.readyState === "complete" && (!badge || !["wait", undefined].includes(badge.dataset.state));
"""


@contextmanager
def chromium(width: int = 1200, height: int = 900) -> Iterator[Any]:
    """A headless Chromium of its own, with logs of its console and its network."""
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        f"--window-size={width},{height}",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


class Opened:
    """A page that was opened from disk, after it said what it found."""

    def __init__(self, driver: Any, path: Path) -> None:
        self.driver = driver
        driver.get_log("browser")
        driver.get_log("performance")
        driver.get(path.as_uri())
        self.settle()

    def settle(self) -> None:
        """Wait until the badge says something."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, PATIENCE, 0.02).until(lambda d: d.execute_script(ENDED))

    @property
    def state(self) -> str:
        """`yes`, `no`, `cannot`; empty where the page's script did not run."""
        return self.driver.execute_script(
            "return document.getElementById('badge')?.dataset.state || ''"
        )

    @property
    def place(self) -> str:
        """What the page says beside its badge."""
        return self.driver.execute_script("return document.getElementById('place').textContent")

    @property
    def text(self) -> str:
        """All text of the page, shown or for a screen reader."""
        return self.driver.execute_script("return document.body.textContent")

    def script(self, text: str, *arguments: Any) -> Any:
        """What a piece of JavaScript gives."""
        return self.driver.execute_script(text, *arguments)

    def console(self) -> list[str]:
        """What stands in the console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the page was opened."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found


@contextmanager
def before_load(driver: Any, script: str) -> Iterator[None]:
    """Run a script in each page before the page's own."""
    made = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)


def emulate(driver: Any, *, scheme: str = "light", media: str = "") -> None:
    """Show pages as somebody who prefers light or dark, or as on paper."""
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


# Pixels of a picture for one of the page.
SCALE = 0.75


def picture(driver: Any, *, most: int, width: int) -> bytes:
    """A PNG of the page, from its top to its end or to a height."""
    height = driver.execute_script("return document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, most), "scale": SCALE}
    made = driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip}
    )
    return base64.b64decode(made["data"])
