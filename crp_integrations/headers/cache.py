"""The directives of `CRP-Context-Cache`: one grammar for the header and for an argument."""

from __future__ import annotations

import re
from typing import Final, Self

from pydantic import Field

from crp_integrations.errors import HeaderSyntaxError
from crp_integrations.records import Part

_FLAGS: Final = {
    "no-store": "no_store",
    "no-cache": "no_cache",
    "reuse-ckf": "reuse_ckf",
    "only-if-ckf": "only_if_ckf",
}
_MAX_AGE: Final = re.compile(r"max-age=([0-9]{1,15})", re.ASCII)
_SHOWN_CHARACTERS: Final = 40


class CacheDirectives(Part):
    """What a caller wants of what is kept.

    Spec: CRP-SPEC-009 §7.1

    Attributes:
        no_store: nothing of the session is written to the fabric; reading is allowed.
        no_cache: the envelope is made anew, whatever is cached.
        reuse_ckf: the fabric is read as it is; no source is read again.
        only_if_ckf: without a relevant fact the call fails.
        max_age_seconds: facts ingested longer ago count as STALE; None for no such age.
    """

    no_store: bool = False
    no_cache: bool = False
    reuse_ckf: bool = False
    only_if_ckf: bool = False
    max_age_seconds: int | None = Field(default=None, ge=0)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a comma list of directives; case does not matter.

        Raises:
            HeaderSyntaxError: a directive is unknown, malformed, or stands twice; names it.

        >>> CacheDirectives.parse("no-store, max-age=3600").text
        'no-store, max-age=3600'
        """
        given: dict[str, bool | int] = {}
        for part in text.split(","):
            directive = part.strip(" \t").lower()
            age = _MAX_AGE.fullmatch(directive)
            field = "max_age_seconds" if age else _FLAGS.get(directive)
            if field is None:
                wanted = ", ".join(_FLAGS)
                raise HeaderSyntaxError(
                    f"cache directive {directive[:_SHOWN_CHARACTERS]!r} is not one of {wanted} "
                    "and max-age=SECONDS"
                )
            if field in given:
                name = directive.partition("=")[0]
                raise HeaderSyntaxError(f"cache directive {name} stands twice; write it once")
            given[field] = int(age[1]) if age else True
        return cls(**given)

    @property
    def text(self) -> str:
        """The directives as a header's value; empty for none."""
        parts = [name for name, field in _FLAGS.items() if getattr(self, field)]
        if self.max_age_seconds is not None:
            parts.append(f"max-age={self.max_age_seconds}")
        return ", ".join(parts)
