"""One large collection out of several sets and files, so that much more stands beside an answer.

    python -m tests.bench.selection_pool --out DIR/prose --sets SET… --asked FILE… --texts FILE…

`--sets` are folders of documents and questions; the documents of all their collections go into one
collection, and a question keeps its own evidence. `--asked` are gzip JSON lines as
`selection_passages` reads them. Of the files of `--texts` the field `passage`, `evidence` or
`context` becomes a document, and nothing is asked. Equal texts are one document. The order of the
arguments decides the order of the documents; nothing is drawn by chance but the questions, with a
fixed seed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from crp_integrations.errors import RequestError
from crp_integrations.evaluation.data_sets import DOCUMENTS, QUERIES, read, rows
from tests.bench.selection_passages import SEED, SHORTEST, made, write_rows

COLLECTION: Final = "all"
# Fields that hold a text of other files, the first that a row has.
FIELDS: Final = ("passage", "evidence", "context")


@dataclass
class Pool:
    """Documents and questions of one collection.

    Attributes:
        documents: title and text by id.
        questions: rows as `data_sets.read` wants them.
    """

    documents: dict[str, tuple[str, str]] = field(default_factory=dict)
    questions: list[dict[str, Any]] = field(default_factory=list)
    _ids: dict[str, str] = field(default_factory=dict)

    def add(self, doc_id: str, title: str, text: str) -> str:
        """The id under which a text is held: its own, or that of an equal one before."""
        known = self._ids.setdefault(text, doc_id)
        if known == doc_id:
            self.documents[doc_id] = title, text
        return known

    def ask(self, source: str, found: Sequence[Mapping[str, Any]], queries: int | None) -> None:
        """Add the questions of a source, or so many of them, in their order."""
        chosen: Iterable[int] = range(len(found))
        if queries is not None and queries < len(found):
            chosen = sorted(random.Random(SEED).sample(range(len(found)), queries))
        for place in chosen:
            row = found[place]
            self.questions.append(
                {**row, "query_id": f"{source}/{row['query_id']}", "collection": COLLECTION}
            )

    def add_set(self, folder: Path, queries: int | None) -> None:
        """Add a set's documents and questions."""
        whole = read(folder)
        asked = []
        for collection in whole.collections:
            name = f"{whole.name}/{collection.name}"
            ids = {
                one.doc_id: self.add(f"{name}/{one.doc_id}", one.title, one.text)
                for one in collection.texts
            }
            for question in collection.questions:
                pieces = [
                    {"doc_id": ids[one.doc_id], "start": one.start, "end": one.end}
                    for one in question.evidence
                ]
                asked.append(
                    {
                        "query_id": f"{collection.name}/{question.query_id}",
                        "query": question.query,
                        "evidence": pieces,
                    }
                )
        self.ask(whole.name, asked, queries)

    def add_asked(self, file: Path, queries: int | None) -> None:
        """Add the passages of a file and the questions or claims about them."""
        name = file.name.partition(".")[0]
        documents, questions = made(file, None)
        ids = {
            one["doc_id"]: self.add(f"{name}/{one['doc_id']}", one["title"], one["text"])
            for one in documents
        }
        asked = [
            {
                **row,
                "evidence": [{**one, "doc_id": ids[one["doc_id"]]} for one in row["evidence"]],
            }
            for row in questions
        ]
        self.ask(name, asked, queries)

    def add_texts(self, file: Path) -> None:
        """Add the texts of a file, about which nothing is asked."""
        name = file.name.partition(".")[0]
        for number, text in enumerate(_texts(file)):
            self.add(f"{name}/t{number}", "", text)


def _texts(file: Path) -> Iterator[str]:
    for place, row in rows(file):
        text = next((row[name] for name in FIELDS if isinstance(row.get(name), str)), None)
        if text is None:
            raise RequestError(f"{place} has none of {', '.join(FIELDS)}, wanted a text")
        if len(text.strip()) >= SHORTEST:
            yield text


def main(arguments: list[str] | None = None) -> None:
    """Write one set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the set")
    parser.add_argument("--sets", type=Path, nargs="+", default=[], metavar="DIR")
    parser.add_argument("--asked", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--texts", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--queries", type=int, help="at most so many of each set and file")
    given = parser.parse_args(arguments)
    pool = Pool()
    try:
        for folder in given.sets:
            pool.add_set(folder, given.queries)
        for file in given.asked:
            pool.add_asked(file, given.queries)
        for file in given.texts:
            pool.add_texts(file)
        if not pool.questions:
            raise RequestError(
                "there is no question, wanted a folder of --sets or a file of --asked"
            )
        given.out.mkdir(parents=True, exist_ok=True)
        documents = (
            {"doc_id": one, "title": title, "collection": COLLECTION, "text": text}
            for one, (title, text) in pool.documents.items()
        )
        write_rows(given.out / DOCUMENTS, documents)
        write_rows(given.out / QUERIES, pool.questions)
    except (RequestError, OSError) as error:
        sys.exit(f"crp: {error}")
    print(f"{given.out}: {len(pool.documents)} documents, {len(pool.questions)} questions")


if __name__ == "__main__":
    main()
