"""Pictures of a report and an envelope for `docs/images/`: `python -m tests.house.screenshots`."""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from crp_integrations import examine, pack
from tests.receipt.page.browser import CHROMIUM, DRIVER, Opened, chromium, emulate, picture
from tests.requirements.rows import ROOT

FOLDER = ROOT / "docs" / "images"
# Pixels of the page, as wide as a notebook's cell, and of the picture at most.
WIDE, TALL = 980, 1_000
NOON = datetime(2026, 5, 25, 12, 0, tzinfo=UTC)
QUESTION = "How much power does the Meridian reactor deliver, and who operates it?"
PASSAGES = (
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a licence of forty years.",
    "Northfield Energy reported revenue of $4.2 million in 2023 and employs 310 people.",
    "The cooling system does not draw water from the river during summer.",
    "Every reactor of Northfield Energy is inspected twice a year by the Office of Energy.",
    "The Meridian reactor is run by Northfield Energy under a licence of forty years.",
    "The Meridian reactor replaced two coal plants, which were closed in 2018.",
    "A visitors' centre beside the Meridian reactor is open on weekends from April to October.",
    "Gardens in the valley grow tulips and roses every spring.",
)
ANSWER = (
    "The Meridian reactor delivers 512 megawatts. It is operated by Northfield Energy "
    "under a licence of forty years. Northfield Energy employs 310 people. "
    "The cooling system is fed by a lake nearby. Northfield Energy plans to build a second reactor in Denmark. "
    "I think that this is a good solution."
)


def report_page() -> str:
    """A report with a claim of each kind."""
    return examine(ANSWER, PASSAGES, QUESTION).to_html(PASSAGES)


def envelope_page() -> str:
    """An envelope that left some facts out."""
    return pack(QUESTION, PASSAGES, model="gpt-4o", budget_tokens=110, now=NOON).to_html(PASSAGES)


def main() -> None:
    if not CHROMIUM or not DRIVER:
        sys.exit("no chromium and chromedriver here")
    with tempfile.TemporaryDirectory() as folder, chromium(WIDE, 300) as driver:
        path = Path(folder) / "page.html"
        for name, text in (("report", report_page()), ("envelope", envelope_page())):
            path.write_text(text, encoding="utf-8")
            for scheme in ("light", "dark"):
                emulate(driver, scheme=scheme)
                Opened(driver, path)
                made = picture(driver, most=TALL, width=WIDE)
                (FOLDER / f"{name}-{scheme}.png").write_bytes(made)
                print(f"{name}-{scheme}.png", len(made))


if __name__ == "__main__":
    main()
