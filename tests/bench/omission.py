"""Where a fact counts as used: cosines of facts with sentences of their own and of neighbours.

`python -m tests.bench.omission FOLDER…` cuts Markdown files into facts as ingestion
does. A sentence from within a fact stands for an answer that uses it; the other facts of the same
file, which are about nearly the same, stand for omitted ones. Sentences are verbatim, so the
cosine of a use in other words lies lower than the first column says.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from crp_integrations.errors import ConfigError
from crp_integrations.fabric.records import Where
from crp_integrations.language.text import split_sentences
from crp_integrations.ports import Embedder
from crp_integrations.relay.defaults import default_embedder
from crp_integrations.relay.relay import Relay

LEAST_CHARACTERS: Final = 40
CUTS: Final = tuple(round(0.30 + 0.01 * step, 2) for step in range(41))


def facts_of(folders: list[Path]) -> Iterator[list[str]]:
    """The facts of each Markdown file, files in the order of their names.

    Raises:
        ConfigError: there is no Markdown file.
    """
    paths = sorted(path for folder in folders for path in folder.rglob("*.md"))
    if not paths:
        raise ConfigError("there is no .md file in the folders")
    for path in paths:
        with Relay.open(None) as relay:
            relay.ingest(path)
            view = relay.fabric.view()
            yield [fact.content for fact in view.facts(view.find(Where()))]


def cosines(files: list[list[str]], embedder: Embedder) -> tuple[list[float], list[float]]:
    """Best cosines of used and of unused facts: each fact's middle sentence is the answer."""
    used: list[float] = []
    unused: list[float] = []
    for facts in files:
        if len(facts) < 2:
            continue
        rows = embedder.embed_passages(facts)
        for place, fact in enumerate(facts):
            sentences = [s.of(fact) for s in split_sentences(fact)]
            long = [text for text in sentences if len(text) >= LEAST_CHARACTERS]
            if len(long) < 2:
                continue
            row = embedder.embed_passages([long[len(long) // 2]])[0]
            near = rows @ row
            used.append(float(near[place]))
            unused.extend(float(value) for at, value in enumerate(near) if at != place)
    return used, unused


def main() -> None:
    """Print the shares on either side of each cut, and the cut with the best balance."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    folders = parser.parse_args().folders
    used, unused = map(np.array, cosines(list(facts_of(folders)), default_embedder()))
    table = {cut: (float((used >= cut).mean()), float((unused < cut).mean())) for cut in CUTS}
    best = max(CUTS, key=lambda cut: (round(sum(table[cut]), 6), -cut))
    shown = {f"{cut:.2f}": [round(share, 3) for share in table[cut]] for cut in CUTS[::5]}
    print(
        json.dumps(
            {
                "used": len(used),
                "unused": len(unused),
                "cut: share of used at or above, share of unused below": shown,
                "best": {f"{best:.2f}": [round(share, 3) for share in table[best]]},
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
