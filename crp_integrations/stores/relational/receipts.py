"""The receipts facet over one connection. The tables refuse changes of signed data."""

# ruff: noqa: S608 - only names of ours are put into a statement; every value is a parameter.

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from crp_integrations.errors import ReceiptBroken, StoreDamaged, StoreError
from crp_integrations.receipt.canonical import dumps
from crp_integrations.receipt.merkle import grown, position
from crp_integrations.receipt.records import (
    OmissionReason,
    Receipt,
    Text,
    texts_from_json,
    texts_to_json,
)
from crp_integrations.receipt.redaction import erased, silent
from crp_integrations.receipt.signed_statement import IN_TOTO, Signed, Statement, keyid_of
from crp_integrations.stores import rules
from crp_integrations.stores.relational.rows import ANY_SOURCE, NO_KEY, keys_of, naming, source_name
from crp_integrations.stores.rules import (
    AMONG,
    MAX_SHOWN,
    WINDOWS_DUE,
    Statements,
    among,
    note_due,
    pages,
)

COLUMNS = "place, payload, signature, key, texts"
READ = f"SELECT {COLUMNS} FROM receipts LEFT JOIN receipt_contents USING (place)"
# Whether the receipt exists, the last receipt's place, and whether any fact was withdrawn.
BEFORE = (
    "SELECT EXISTS (SELECT 1 FROM receipts WHERE receipt_id = ?), "
    "(SELECT coalesce(max(place), -1) FROM receipts), EXISTS (SELECT 1 FROM withdrawn_facts)"
)
ADD = (
    "INSERT INTO receipts (place, receipt_id, session_id, window_id, payload, signature, key) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
# Receipts with texts whose facts are not named, in the order of the log.
_UNNAMED = (
    "SELECT place FROM receipts WHERE NOT EXISTS "
    "(SELECT 1 FROM receipt_facts WHERE receipt_facts.place = receipts.place) AND EXISTS "
    "(SELECT 1 FROM receipt_contents WHERE receipt_contents.place = receipts.place) ORDER BY place"
)
ADD_CONTENT = "INSERT INTO receipt_contents (place, padding, texts) VALUES (?, ?, ?)"


class RelationalReceipts:
    """Receipts of one namespace, and their log."""

    def __init__(self, connection: Statements, gate: rules.TransactionGate) -> None:
        self._connection = connection
        self._gate = gate

    def add(self, receipt: Receipt, sources: Mapping[str, str]) -> int:
        """Add a receipt and its leaf of the log; return its place."""
        self._gate.writing()
        there, last, any_withdrawn = self._connection.rows(BEFORE, [receipt.receipt_id])[0]
        if there:
            raise StoreError(f"receipt {receipt.receipt_id} is there already; it is added once")
        if any_withdrawn:
            facts = [leaf.fact_id for leaf in receipt.leaves if leaf.fact_id]
            receipt = erased(receipt, self._withdrawn(facts))
        place, signed, chain = int(last) + 1, receipt.signed, receipt.chain
        self._connection.execute(
            ADD,
            [
                place,
                receipt.receipt_id,
                chain.session_id,
                chain.window_id,
                signed.payload,
                signed.signature,
                receipt.key,
            ],
        )
        self._connection.executemany(
            "INSERT INTO receipt_log (position, hash) VALUES (?, ?)",
            [
                (position(level, at), root)
                for level, at, root in grown(place, receipt.log_hash, self.node)
            ],
        )
        keys = {id_: keys_of([source_name(id_)]) for id_ in {*sources.values()} if id_}
        shown = [(id_, keys.get(sources.get(id_, ""), NO_KEY)) for id_ in _shown_facts(receipt)]
        _keep(self._connection, place, receipt, shown)
        return place

    def get(self, receipt_id: str) -> Receipt | None:
        """A receipt, with the texts that were not erased."""
        self._gate.reading()
        row = self._connection.one(f"{READ} WHERE receipt_id = ?", [receipt_id])
        return None if row is None else _receipt(row)[1]

    def of_window(self, window_id: str) -> Receipt | None:
        """The latest receipt of a window."""
        self._gate.reading()
        row = self._connection.one(
            f"{READ} WHERE window_id = ? ORDER BY place DESC LIMIT 1", [window_id]
        )
        return None if row is None else _receipt(row)[1]

    def ids(self, *, after: int = -1, limit: int = 1_000, session_id: str = "") -> list[str]:
        """Ids of receipts in the order of the log."""
        self._gate.reading()
        where = " AND session_id = ?" if session_id else ""
        values = [after, *((session_id,) if session_id else ()), limit]
        rows = self._connection.rows(
            f"SELECT receipt_id FROM receipts WHERE place > ?{where} ORDER BY place LIMIT ?", values
        )
        return [id_ for (id_,) in rows]

    def place(self, receipt_id: str) -> int | None:
        """A receipt's place in the log, from 0."""
        self._gate.reading()
        row = self._connection.one("SELECT place FROM receipts WHERE receipt_id = ?", [receipt_id])
        return None if row is None else int(row[0])

    def size(self) -> int:
        """How many receipts are in the log."""
        self._gate.reading()
        return int(self._connection.rows("SELECT coalesce(max(place), -1) FROM receipts")[0][0]) + 1

    def node(self, level: int, place: int) -> bytes:
        """The root of a complete subtree of the log."""
        self._gate.reading()
        row = self._connection.one(
            "SELECT hash FROM receipt_log WHERE position = ?", [position(level, place)]
        )
        if row is None:
            raise StoreError(f"the log of receipts has no node {place} of level {level}")
        return bytes(row[0])

    def _withdrawn(self, facts: Sequence[str]) -> set[str]:
        """The facts that were withdrawn while their window was still running."""
        rows = self._connection.rows(
            f"SELECT fact_id FROM withdrawn_facts AS gone WHERE fact_id {AMONG} AND NOT EXISTS "
            "(SELECT 1 FROM facts WHERE facts.fact_id = gone.fact_id AND status <> 'DELETED')",
            [among(facts)],
        )
        return {id_ for (id_,) in rows}


def erase(
    connection: Statements,
    fact_ids: Sequence[str],
    source_id: str,
    windows: Collection[str],
) -> set[str]:
    """Erase texts from receipts, within the open transaction.

    Args:
        windows: ids of windows whose contents are removed.

    Returns:
        Ids of the windows whose receipts lost a text.
    """
    # A receipt whose facts are not named would keep their texts.
    _, unreadable = name_facts(connection)
    named = naming(connection, "receipt_facts", "place", fact_ids, source_id)
    emptied = connection.rows(
        f"SELECT place FROM receipts JOIN receipt_contents USING (place) WHERE window_id {AMONG}",
        [among(sorted(windows))],
    )
    gone, touched = {*fact_ids}, set[str]()
    for place in sorted({*named, *unreadable, *(place for (place,) in emptied)}):
        try:
            for receipt in _at(connection, "place = ?", place):
                facts = gone | _of_source(receipt, named.get(place, b""), source_id)
                answers = receipt.chain.window_id in windows
                touched |= _replace(
                    connection, place, receipt, erased(receipt, facts, answers=answers)
                )
        except StoreDamaged:
            touched.add(_silenced(connection, place))
    if touched:
        note_due(connection, WINDOWS_DUE)
    return touched


def forget(connection: Statements, session_id: str) -> None:
    """Remove all texts from a session's receipts, within the open transaction."""
    connection.execute(
        "DELETE FROM receipt_contents WHERE place IN "
        "(SELECT place FROM receipts WHERE session_id = ?)",
        [session_id],
    )


def unnamed(connection: Statements) -> int:
    """How many receipts with readable texts have no row in `receipt_facts`."""
    return sum(receipt is not None for _, receipt in _unnamed(connection))


def name_facts(connection: Statements) -> tuple[int, list[int]]:
    """Name the facts of these receipts again; their number, and the places of unreadable ones.

    A fact that is not stored any more counts as one of every source, so that no erasure misses it.
    """
    named, unreadable = 0, []
    for place, receipt in _unnamed(connection):
        if receipt is None:
            unreadable.append(place)
            continue
        ids = _shown_facts(receipt)
        rows = connection.rows(
            f"SELECT fact_id, source_id FROM facts WHERE fact_id {AMONG}", [among(ids)]
        )
        sources = {id_: keys_of([source_name(source_id)]) for id_, source_id in rows}
        _name(connection, place, [(id_, sources.get(id_, ANY_SOURCE)) for id_ in ids])
        named += 1
    return named, unreadable


def _unnamed(connection: Statements) -> Iterator[tuple[int, Receipt | None]]:
    for (place,) in connection.rows(_UNNAMED):
        receipt = None
        with suppress(StoreDamaged):
            (receipt,) = _at(connection, "place = ?", place)
        yield place, receipt


def problems(connection: Statements) -> Iterator[str]:
    """Receipts that cannot be read back, one sentence each."""
    return islice(_unreadable(connection), MAX_SHOWN)


def _unreadable(connection: Statements) -> Iterator[str]:
    for page in pages(connection, f"{READ} WHERE place > ? ORDER BY place LIMIT ?", -1, 100):
        for row in page:
            try:
                _receipt(row)
            except StoreDamaged as error:
                yield str(error)


def _at(connection: Statements, where: str, value: Any) -> Iterator[Receipt]:
    for row in connection.rows(f"{READ} WHERE {where}", [value]):
        yield _receipt(row)[1]


def _silenced(connection: Statements, place: int) -> str:
    """Remove all texts of a receipt that cannot be read; return a name in place of a window id.

    It cannot be decided which of its texts quote the erased facts, and the erasure must succeed.
    """
    connection.execute("DELETE FROM receipt_contents WHERE place = ?", [place])
    return f"of place {place}"


def _replace(connection: Statements, place: int, old: Receipt, new: Receipt) -> set[str]:
    """Replace a receipt's texts; return its window's id if they changed."""
    if new.texts == old.texts:
        return set()
    ((keys,),) = connection.rows("SELECT keys FROM receipt_facts WHERE place = ?", [place])
    # Its keys are removed by the table's ON DELETE CASCADE.
    connection.execute("DELETE FROM receipt_contents WHERE place = ?", [place])
    sources = dict(_pairs(keys))
    _keep(
        connection,
        place,
        new,
        [(id_, sources.get(keys_of([id_]), NO_KEY)) for id_ in _shown_facts(new)],
    )
    return {new.chain.window_id}


def _keep(
    connection: Statements, place: int, receipt: Receipt, facts: Sequence[tuple[str, bytes]]
) -> None:
    """Store a receipt's texts, and the keys of its facts; nothing if all texts are left out."""
    if silent(receipt):
        return
    texts = dumps(texts_to_json(receipt.texts), strings_only=True).decode()
    connection.execute(ADD_CONTENT, [place, connection.padding, texts])
    _name(connection, place, facts)


def _name(connection: Statements, place: int, facts: Sequence[tuple[str, bytes]]) -> None:
    keys = b"".join([keys_of([id_]) + source for id_, source in facts])
    connection.execute("INSERT INTO receipt_facts (place, keys) VALUES (?, ?)", [place, keys])


def _shown_facts(receipt: Receipt) -> list[str]:
    """Ids of the facts whose texts a receipt contains."""
    return [
        leaf.fact_id
        for leaf, text in zip(receipt.leaves, receipt.texts, strict=True)
        if leaf.fact_id and not isinstance(text, OmissionReason)
    ]


def _pairs(keys: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The key of each fact of a receipt, with its source's."""
    size = len(NO_KEY)
    for at in range(0, len(keys), 2 * size):
        yield keys[at : at + size], keys[at + size : at + 2 * size]


def _of_source(receipt: Receipt, keys: bytes, source_id: str) -> set[str]:
    """The facts of a receipt that come from a source."""
    if not source_id:
        return set()
    sources = (keys_of([source_name(source_id)]), ANY_SOURCE)
    facts = {fact for fact, own in _pairs(keys) if own in sources}
    return {id_ for id_ in _shown_facts(receipt) if keys_of([id_]) in facts}


def _receipt(row: Sequence[Any]) -> tuple[int, Receipt]:
    place, payload, signature, key, texts = row
    try:
        statement = Statement.from_payload(payload)
        leaf_texts: tuple[Text, ...] = (OmissionReason.ERASED,) * len(statement.leaves)
        if texts is not None:
            leaf_texts = texts_from_json(json.loads(texts), statement.leaves)
        signed = Signed(payload, IN_TOTO, keyid_of(key), signature)
    except (ReceiptBroken, ValueError, TypeError) as error:
        raise StoreDamaged(
            f"receipt {place} of the log does not read back: {type(error).__name__}"
        ) from None
    return place, Receipt(signed, key, statement, leaf_texts)
