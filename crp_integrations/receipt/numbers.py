"""Numbers, and stretches of texts, as the content of a receipt has them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

_MOST: Final = 2**53 - 1

Whole = Annotated[int, Field(strict=True, ge=-_MOST, le=_MOST)]
Count = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
# Number of a leaf; a stretch of one, from and to a character; or a literal between such.
Stretch = tuple[Count, Count, Count]
Piece = Count | Stretch | str
# A decimal as Python prints it, so that it is read back to the same float.
Decimal = Annotated[str, Field(pattern=r"^-?(\d+(\.\d+)?([eE][-+]?\d+)?|inf|nan)$")]
