"""What was left out of an envelope: one record a candidate, made when it is read.

Thousands of candidates are left out of one envelope, and mostly nobody reads the report. It
is worked out as columns; it looks, compares and serialises as the tuple of its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, overload

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from crp_integrations.envelope.columns import Integers
from crp_integrations.envelope.pairs import Places
from crp_integrations.records import Part
from crp_integrations.vocabulary import DropReason


class Drop(Part):
    """A candidate that is not in the envelope, and why.

    Attributes:
        kept: for a duplicate, the id of the fact that stands for it.
    """

    fact_id: str
    reason: DropReason
    tokens: int = Field(ge=0)
    kept: str | None = None


class DropRow(NamedTuple):
    """The fields of a `Drop`, where no record is wanted."""

    fact_id: str
    reason: DropReason
    tokens: int
    kept: str | None


def rows_of(dropped: Sequence[Drop]) -> Iterable[Drop | DropRow]:
    """What was left out, for who reads it once; of columns no record is made and kept."""
    return dropped.rows() if isinstance(dropped, Drops) else dropped


class Drops(Sequence[Drop]):
    """A drop report as columns; equal to any other sequence of the same records.

    It holds ids and counts, no fact's text.
    """

    __slots__ = ("_at", "_ids", "_kept", "_made", "_over_k", "_refused", "_tokens")

    def __init__(
        self,
        ids: Sequence[str],
        tokens: Integers,
        at: Places,
        kept: Mapping[str, str],
        over_k: frozenset[str],
        refused: tuple[Drop, ...] = (),
    ) -> None:
        """Take ids and tokens of all candidates, and why what was left out is not in.

        Args:
            at: positions of what was left out, in the order of the report.
            kept: for each duplicate, the id of the fact that stands for it.
            over_k: ids beyond the cap on the number of facts.
            refused: what was never ranked, which stands at the end of the report.
        """
        self._ids = ids
        self._tokens = tokens
        self._at = at
        self._kept = kept
        self._over_k = over_k
        self._refused = refused
        self._made: tuple[Drop, ...] | None = None

    def __len__(self) -> int:
        return len(self._at) + len(self._refused)

    def __iter__(self) -> Iterator[Drop]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> Drop: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Drop, ...]: ...

    def __getitem__(self, index: int | slice) -> Drop | tuple[Drop, ...]:
        if self._made is None and not isinstance(index, slice):
            place = range(len(self))[index]
            ranked = len(self._at)
            if place >= ranked:
                return self._refused[place - ranked]
            return self._record(int(self._at[place]))
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, (tuple, Drops)):
            return NotImplemented
        return len(self) == len(other) and self._all() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def by_reason(self) -> dict[DropReason, tuple[list[str], int]]:
        """Ids and tokens by reason, without a record for each candidate."""
        found: dict[DropReason, tuple[list[str], int]] = {}
        rows = [
            (self._ids[at], self._reason(self._ids[at]), int(self._tokens[at]))
            for at in self._at.tolist()
        ]
        rows += [(one.fact_id, one.reason, one.tokens) for one in self._refused]
        for fact_id, reason, tokens in rows:
            ids, before = found.get(reason, ([], 0))
            ids.append(fact_id)
            found[reason] = (ids, before + tokens)
        return found

    def rows(self) -> list[Drop | DropRow]:
        """Everything that was left out, in the order of the report."""
        ids, tokens, kept = self._ids, self._tokens, self._kept.get
        return [
            *(
                DropRow(ids[at], self._reason(ids[at]), tokens.item(at), kept(ids[at]))
                for at in self._at.tolist()
            ),
            *self._refused,
        ]

    def _all(self) -> tuple[Drop, ...]:
        if self._made is None:
            ranked = [self._record(at) for at in self._at.tolist()]
            self._made = (*ranked, *self._refused)
        return self._made

    def _record(self, at: int) -> Drop:
        fact_id = self._ids[at]
        return Drop(
            fact_id=fact_id,
            reason=self._reason(fact_id),
            tokens=int(self._tokens[at]),
            kept=self._kept.get(fact_id),
        )

    def _reason(self, fact_id: str) -> DropReason:
        if fact_id in self._kept:
            return DropReason.DUPLICATE
        return DropReason.K if fact_id in self._over_k else DropReason.BUDGET


class _Late:
    """Lets a drop report pass as it is; everything else is read and written as a tuple."""

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        plain = handler.generate_schema(tuple[Drop, ...])
        return core_schema.no_info_wrap_validator_function(
            _read,
            plain,
            serialization=core_schema.wrap_serializer_function_ser_schema(_written, schema=plain),
        )


def _read(value: Any, handler: Callable[[Any], Any]) -> Any:
    return value if isinstance(value, Drops) else handler(value)


def _written(value: Sequence[Drop], handler: Callable[[Any], Any]) -> Any:
    return handler(tuple(value))


Dropped = Annotated[Sequence[Drop], _Late]
