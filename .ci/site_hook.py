"""What MkDocs does with the pages besides: anchors as GitHub makes them, no links out of the site.

Decision records are no part of the search: whoever searches wants what holds, and not why.

The pages are read in a checkout too, where a link to a file beside `docs/` leads somewhere.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

RECORDS = "adr/"
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s#]*)(?:#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Headings get the anchors that GitHub gives them."""
    from pymdownx.slugs import slugify

    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A link to a file of the repository outside `docs/` becomes the file's path."""
    if page.file.src_uri.startswith(RECORDS):
        # Material reads this as it would stand in the page's front matter.
        page.meta["search"] = {"exclude": True}
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def told(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        if path.startswith("docs/"):
            return found[0]
        return f"{found[1]} (`{path}`)" if found[1].strip("`") != path else f"`{path}`"

    return LINK.sub(told, markdown)
