"""Looks at the built site: `python -m tests.house.site FOLDER`, after `mkdocs build`.

A page loads nothing from elsewhere: no script, style, font, picture or frame has an address of another host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

# Links that only name another page.
NAMED = frozenset({"canonical", "next", "prev", "alternate", "search"})
ELSEWHERE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
STYLED = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)


class AssetLoads(HTMLParser):
    """Collects what a page loads from another host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "a" or (tag == "link" and told.get("rel") in NAMED):
            return
        for name in ("src", "href", "srcset", "data", "poster"):
            if ELSEWHERE.match(told.get(name) or ""):
                self.found.append(f"<{tag}> {told[name]}")
        self.found += [f"<{tag}> {one}" for one in STYLED.findall(told.get("style") or "")]


def loads(folder: Path) -> Iterator[str]:
    """What the pages and styles of a site load from elsewhere."""
    for page in sorted(folder.rglob("*.html")):
        parser = AssetLoads()
        parser.feed(page.read_text(encoding="utf-8"))
        yield from (f"{page.relative_to(folder)}: {one}" for one in parser.found)
    for style in sorted(folder.rglob("*.css")):
        found = STYLED.findall(style.read_text(encoding="utf-8"))
        yield from (f"{style.relative_to(folder)}: {one}" for one in found)


def main(arguments: Sequence[str]) -> int:
    """Print what is loaded from elsewhere; status 1 when something is, or when there is no page."""
    folder = Path(arguments[0])
    found, pages = list(loads(folder)), len(list(folder.rglob("*.html")))
    print(*found, f"site: {pages} pages, {len(found)} loads from elsewhere", sep="\n")
    return int(bool(found) or not pages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
