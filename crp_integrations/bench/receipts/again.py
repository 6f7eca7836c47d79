"""`python -m crp_integrations.bench.receipts.again FILE`: replay a file of receipts, one a line.

It is run in a process of its own, with another hash seed and, where there is one, another Python.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from crp_integrations.receipt.records import read
from crp_integrations.receipt.replay import replay
from crp_integrations.receipt.replay_records import EQUAL
from crp_integrations.receipt.verify import verify

BYTES = ("selection", "context", "prompt")


def replayed(data: bytes) -> dict[str, Any]:
    """What replaying every receipt came to.

    Args:
        data: receipts, each ending with its line feed.
    """
    total, broken = 0, []
    for line in data.splitlines(keepends=True):
        total += 1
        if not verify(line).ok:
            broken.append(f"receipt {total}: not verified")
            continue
        found = replay(read(line))
        broken += [
            f"receipt {total}: {one.name} {one.state} {one.place} {one.why}"
            for one in found.parts
            if one.name in BYTES and one.state != EQUAL
        ]
    return {
        "python": platform.python_version(),
        "hash_seed": os.environ.get("PYTHONHASHSEED", "random"),
        "receipts": total,
        "broken": broken[:10],
        "equal": total - len({one.partition(":")[0] for one in broken}),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(replayed(Path(sys.argv[1]).read_bytes())) + "\n")
