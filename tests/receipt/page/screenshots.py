"""Pictures of the page for `docs/images/`, made in Chromium: `python -m tests.receipt.page.screenshots`.

The receipt is of a real session (`real.py`): clock and key stand still, so it is always the same.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from crp_integrations.receipt.page import page
from tests.receipt.page.browser import CHROMIUM, DRIVER, Opened, chromium, emulate, picture
from tests.receipt.page.real import session
from tests.requirements.rows import ROOT

FOLDER = ROOT / "docs" / "images"
# Of the whole page, what is shown without reading on.
TALL = 1_180
# Pixels between the margins of an A4 page.
PAPER = 670


def main() -> None:
    if not CHROMIUM or not DRIVER:
        sys.exit("no chromium and chromedriver here")
    first, second, data = session()
    changed = data.replace(b"eight months", b"seven months", 1)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        path = Path(folder) / "page.html"

        def shown(
            receipt: bytes, name: str, most: int, scheme: str = "light", media: str = ""
        ) -> None:
            path.write_text(page(receipt, (first, second)), encoding="utf-8")
            emulate(driver, scheme=scheme, media=media)
            opened = Opened(driver, path)
            (FOLDER / name).write_bytes(picture(driver, most=most, width=PAPER if media else 1_200))
            print(name, opened.state)

        shown(data, "receipt-light.png", TALL)
        shown(data, "receipt-dark.png", TALL, "dark")
        shown(changed, "receipt-changed.png", 420)
        size = {"width": PAPER, "height": TALL, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        shown(data, "receipt-print.png", PAPER, media="print")


if __name__ == "__main__":
    main()
