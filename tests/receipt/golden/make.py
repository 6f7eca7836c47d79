"""How the receipts beside this file were made.

Nothing has been released yet, so a change of what is signed makes them anew. Those that stand here
at the first release are never made again: a new version of the format adds files.

    python -m tests.receipt.golden.make FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from crp_integrations import Relay
from crp_integrations.receipt.records import Receipt, write
from crp_integrations.receipt.redaction import redact
from tests.doubles import NOON, HashEmbedder, ScriptedModel
from tests.receipt.judging import judged
from tests.relay.conftest import FACTS, KEY

SESSION = "crp_sess_" + "g0lden" * 3
QUESTION = "How many megawatts does the Meridian reactor deliver, and who operates it?"
SAID = "It delivers 412 megawatts and is operated by Northfield Energy."
NEXT = "It reported revenue of $4.2 million in 2023."


def main(folder: Path) -> None:
    """Write the receipts, a head and proofs into a folder."""
    relay = Relay.open(
        embedder=HashEmbedder(), key=KEY, clock=NOON, models=ScriptedModel(SAID, NEXT)
    )
    relay.fabric.add(list(FACTS))
    relay.ask(QUESTION, session_id=SESSION)
    relay.ask("Which revenue did the operator report?", session_id=SESSION)
    receipts = relay.receipts()
    first, second = (_found(relay, id_) for id_ in receipts.ids(SESSION))
    files = {
        "first.json": write(first),
        "second.json": write(second),
        "redacted.json": write(redact(first, facts=[_fact(first, FACTS[0])])),
        "judged.json": write(judged()[0]),
        "head.json": receipts.head().write(),
        "proof.json": receipts.inclusion(second.receipt_id).write(),
        "consistency.json": receipts.consistency(1, 2).write(),
    }
    (source,) = relay.fabric.sources()
    relay.fabric.erase(source.source_id)
    files["erased.json"] = write(_found(relay, first.receipt_id))
    for name, data in files.items():
        (folder / name).write_bytes(data)


def _found(relay: Relay, id_: str) -> Receipt:
    found = relay.receipt(id_)
    if found is None:
        raise LookupError(id_)
    return found


def _fact(receipt: Receipt, text: str) -> str:
    return next(leaf.fact_id for n, leaf in enumerate(receipt.leaves) if receipt.text(n) == text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
