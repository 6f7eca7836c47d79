"""The two base classes of everything written to the wire, to disk or to framework metadata.

`Part` is a frozen pydantic model that refuses unknown fields. `Record` is a `Part` that
is sent or stored on its own and therefore has `schema: name/n`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import (
    VERSION,
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

# A model is built when it is first used. Before pydantic 2.14 two threads could build one at once
# and read a half-built class, so there it is built at import.
_LOCKED_BUILDS = tuple(map(int, VERSION.split(".")[:2])) >= (2, 14)


class Part(BaseModel):
    """A frozen piece of a record; unknown fields are refused."""

    # A validation error names fields but never shows their values, which may be a fact's text.
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=False,
        hide_input_in_errors=True,
        defer_build=_LOCKED_BUILDS,
    )


class Record(Part):
    """A part that is stored or sent on its own and names its schema and version.

    Serialising adds `schema: name/n` as the first key. Reading accepts the current version and
    older ones (through `upgrade`), and refuses another name or a newer version.
    """

    SCHEMA: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _read_schema(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "schema" not in data:
            return data
        fields = dict(data)
        tag = str(fields.pop("schema"))
        name, _, number = tag.partition("/")
        own_name, _, own_number = cls.SCHEMA.partition("/")
        if name != own_name or not number.isdecimal():
            raise ValueError(f"schema {tag!r} is not {cls.SCHEMA!r}")
        if int(number) > int(own_number):
            raise ValueError(f"schema {tag!r} is newer than {cls.SCHEMA!r}, wanted at most that")
        if int(number) < int(own_number):
            return cls.upgrade(int(number), fields)
        return fields

    @classmethod
    def upgrade(cls, number: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Turn the fields of an older schema version into those of the current one."""
        return fields

    @model_serializer(mode="wrap")
    def _write_schema(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"schema": self.SCHEMA, **handler(self)}

    def changed(self, **fields: Any) -> Self:
        """Return a copy with some fields replaced and everything validated again."""
        current = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate({**current, **fields})
