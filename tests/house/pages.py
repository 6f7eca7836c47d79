"""Reads the Markdown pages: fenced blocks, marked commands, links, headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*?) -->\n+)?^```(?P<language>\w*)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block with the comment above it."""

    language: str
    body: str
    mark: str


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page in order."""
    text = path.read_text(encoding="utf-8")
    return [Block(m["language"], m["body"], m["mark"] or "") for m in BLOCK.finditer(text)]


def links(path: Path) -> list[str]:
    """Targets of the links of a page, code blocks left out."""
    return LINK.findall(BLOCK.sub("", path.read_text(encoding="utf-8")))


def words(path: Path) -> int:
    """Words of a page beside code, comments and the targets of links."""
    text = path.read_text(encoding="utf-8")
    for code in (r"<!--.*?-->", r"^```.*?^```$", r"\]\([^)]*\)"):
        text = re.sub(code, "", text, flags=re.MULTILINE | re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def anchors(path: Path) -> set[str]:
    """Anchors of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def page_script(path: Path) -> str:
    """The script that a page's Python makes, with its `setup` comments where they stand.

    A block below `not run: REASON` is compiled here and left out.
    """
    made = []
    pattern = re.compile(rf"<!-- setup\n(?P<setup>.*?)-->|{BLOCK.pattern}", BLOCK.flags)
    for found in pattern.finditer(path.read_text(encoding="utf-8")):
        if found["setup"]:
            made.append(found["setup"])
        elif found["language"] == "python":
            if (found["mark"] or "").startswith("not run: "):
                compile(found["body"], path.name, "exec")
            else:
                made.append(found["body"])
    return "\n\n".join(made)
