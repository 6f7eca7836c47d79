"""`python -m tests.receipt.again FILE`: replay one receipt in a process of its own, and say how."""

from __future__ import annotations

import sys
from pathlib import Path

from crp_integrations.receipt.records import read
from crp_integrations.receipt.replay import replay

if __name__ == "__main__":
    sys.stdout.write(replay(read(Path(sys.argv[1]).read_bytes())).model_dump_json())
