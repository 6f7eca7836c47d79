"""The shipped access policy: `access.rego` with its data `access.json` and its tests.

`access_test.rego` contains test cases, each an input with the expected decision. Your own bundle is
a folder of the same form.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from crp_integrations.guard.ports import Bundle

ENTRYPOINT: Final = "crp/access/decision"


@cache
def access() -> Bundle:
    """The shipped policy as a bundle for a policy engine.

    Spec: Summit §Policy-as-Code Compliance Rules
    """
    folder = files(__name__)
    data: dict[str, Any] = json.loads((folder / "access.json").read_text(encoding="utf-8"))
    return Bundle(
        name=str(data.pop("name")),
        module=(folder / "access.rego").read_text(encoding="utf-8"),
        data=data,
        entrypoint=ENTRYPOINT,
    )
