"""Questions, each with the one passage that answers it; the other passages are the distractors.

A file is gzip JSON lines of `query, answers: [text], title, passage`, UTF-8.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_rows import each
from tests.bench.selection.data import Collection, Evidence, Question, Text

FORM = "query, answers (a list of texts), title and passage"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with what answers it.

    Attributes:
        answers: any of them is right.
        passage: where at least one of them stands.
    """

    query: str
    answers: tuple[str, ...]
    title: str
    passage: str

    def right(self, reply: str) -> bool:
        """Whether a reply says one of the answers, whatever its case and white space."""
        said = _plain(reply)
        return any(_plain(answer) in said for answer in self.answers)


def find(data: Path) -> list[Path]:
    """Files of questions: `data` itself, those in it, or those in its folder `rot`.

    Raises:
        RequestError: there is none.
    """
    if data.is_file():
        return [data]
    for folder in (data, data / "rot"):
        if found := sorted(folder.glob("*.jsonl.gz")):
            return found
    raise RequestError(
        f"--data is {str(data)!r:.120}, wanted a file of {FORM}, or a folder with such *.jsonl.gz"
    )


def read(path: Path) -> list[Asked]:
    """The questions of a file whose answer stands in their passage, each passage once.

    Raises:
        RequestError: the file cannot be read or a line is not of the form; names file and line.
    """
    found: dict[str, Asked] = {}
    for one in each(path, FORM, asked_in):
        if one.right(one.passage):
            found.setdefault(one.passage, one)
    if not found:
        raise RequestError(f"{path} holds no question whose passage says an answer")
    return list(found.values())


def asked_in(row: dict[str, Any]) -> Asked:
    """The question of a row.

    Raises:
        KeyError, ValueError: the row is not of `FORM`.
    """
    return Asked(
        _text(row["query"]),
        tuple(_text(answer) for answer in _list(row["answers"])),
        str(row.get("title") or ""),
        _text(row["passage"]),
    )


def collections(asked: Sequence[Asked], size: int, questions: int) -> Iterator[Collection]:
    """Collections of `size` passages, each the distractor of the other ones' questions.

    A question is left out of a collection where another passage says its answer too.

    Args:
        questions: at most so many over all collections; they are spread evenly.
    """
    groups = [asked[first : first + size] for first in range(0, len(asked) - size + 1, size)]
    left = questions
    for number, group in enumerate(groups):
        texts = tuple(Text(f"p{place}", one.title, one.passage) for place, one in enumerate(group))
        fair = [place for place, one in enumerate(group) if _alone(one, group)]
        share = min(len(fair), -(-left // (len(groups) - number)))
        taken = [fair[place * len(fair) // share] for place in range(share)]
        left -= share
        if taken:
            yield Collection(
                f"{size}/{number}",
                texts,
                tuple(
                    Question(
                        str(place),
                        group[place].query,
                        (Evidence(f"p{place}", 0, len(group[place].passage)),),
                    )
                    for place in taken
                ),
            )


def shuffled(collection: Collection, seed: int) -> Collection:
    """The same collection with its texts in another order."""
    texts = list(collection.texts)
    random.Random(seed).shuffle(texts)
    return Collection(collection.name, tuple(texts), collection.questions)


def _alone(one: Asked, group: Sequence[Asked]) -> bool:
    return not any(other is not one and one.right(other.passage) for other in group)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("no list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("no text")
    return value


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
