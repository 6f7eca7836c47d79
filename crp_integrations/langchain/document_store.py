"""A key-value store of LangChain over the fabric: the whole documents behind small chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from langchain_core.documents import Document
from langchain_core.stores import BaseStore

from crp_integrations.errors import RequestError
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Store
from crp_integrations.langchain.stored_values import NewValue, ValueStore, json_value
from crp_integrations.vocabulary.context import SourceKind

# What the URIs of its sources begin with: `documents:reports`.
SCHEME: Final = "documents"


class CRPDocumentStore(BaseStore[str, Document]):
    """Documents of any length by key, in a crash-safe, erasable and sealed fabric.

    For what wants a `docstore`, such as a retriever that finds chunks and answers with the
    documents that they are of.

    Spec: CRP-SPEC-009 §2, §8

    Args:
        place: a folder of its own, made at the first write; None for memory; or a namespace of a
            fabric. Relays over that namespace answer questions from the documents too.
        name: of the collection; keys of two collections have nothing to do with each other.
        kind: kind of source of what is kept; decides its importance.
        labels: access labels put on what is kept.
        options: of `Relay.open`, such as `subject`, where no namespace is given.

    Raises:
        RequestError: a relay is given, options beside a namespace, or no name.
    """

    def __init__(
        self,
        place: Namespace | Store | str | Path | None = None,
        *,
        name: str = "documents",
        kind: SourceKind | str = SourceKind.USER,
        labels: Sequence[str] = (),
        **options: Any,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise RequestError(f"the collection's name is {name!r:.40}; give a text")
        self._values = ValueStore(place, scheme=SCHEME, kind=kind, labels=labels, **options)
        self._path = (name,)

    @property
    def namespace(self) -> Namespace:
        """Where the documents are."""
        return self._values.namespace

    def mget(self, keys: Sequence[str]) -> list[Document | None]:
        """Documents in the order of the keys; None for what is not there.

        Raises:
            RequestError: the keys are no list, or one of them is no text.
        """
        keys = _keys(keys)
        found = self._values.get([(self._path, key) for key in keys])
        return [
            _document(found[self._path, key].value) if (self._path, key) in found else None
            for key in keys
        ]

    def mset(self, key_value_pairs: Sequence[tuple[str, Document]]) -> None:
        """Keep documents, in the place of those with the same keys: all of them or none.

        Raises:
            RequestError: these are no pairs, a key is no text, or a document's metadata are no
                plain JSON.
        """
        try:
            last = dict(key_value_pairs)
        except (TypeError, ValueError):
            raise RequestError(
                "mset takes pairs of a key and a document, such as [('a', document)]"
            ) from None
        _keys(list(last))
        self._values.put([_new_value(self._path, key, document) for key, document in last.items()])

    def mdelete(self, keys: Sequence[str]) -> None:
        """Delete documents; keys that are not there are left out.

        Raises:
            RequestError: the keys are no list, or one of them is no text.
        """
        self._values.remove([(self._path, key) for key in _keys(keys)])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Keys that begin so, ascending; all of them without a prefix."""
        for kept in sorted(self._values.under(self._path), key=lambda one: one.key):
            if kept.key.startswith(prefix or ""):
                yield kept.key


def _keys(given: Sequence[str]) -> list[str]:
    """Keys as a list; a text in its place would be read letter by letter."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise RequestError(f"keys is {type(given).__name__}, wanted a list of keys")
    keys = list(given)
    for key in keys:
        if not isinstance(key, str):
            raise RequestError(f"key {key!r:.40} is {type(key).__name__}, wanted a text")
    return keys


def _new_value(path: tuple[str, ...], key: str, document: Document) -> NewValue:
    if not isinstance(document, Document):
        raise RequestError(f"the value of {key!r:.40} is {type(document).__name__}, not a Document")
    value = {"content": document.page_content, "metadata": document.metadata, "id": document.id}
    return NewValue(path, key, json_value(key, value), (document.page_content,))


def _document(value: dict[str, Any]) -> Document:
    return Document(value["content"], metadata=value["metadata"], id=value["id"])
