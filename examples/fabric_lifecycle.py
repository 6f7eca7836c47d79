"""The life of a fact: ingested, updated, quarantined, erased, and proof of each.

Run it as it stands: `python examples/fabric_lifecycle.py`. It needs no key.
"""

import tempfile
from pathlib import Path

from crp_integrations import Relay
from crp_integrations.fabric.records import Where

FIRST = """# Refunds

A refund is granted within 30 days of purchase when the original receipt is shown.

Shipping costs 4.90 EUR within the country and is not refunded in any case.
"""
SECOND = FIRST.replace("30 days", "60 days")


def shown(relay: Relay) -> None:
    fabric = relay.fabric
    for fact in fabric.facts(fabric.find(Where())):
        print(f"  {fact.status:<12} {fact.content.splitlines()[-1][:60]}")
    print(f"  state {fabric.state_hash()[:20]}…")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "refunds.md"
        page.write_text(FIRST, encoding="utf-8")

        with Relay.open(Path(folder) / "kb") as relay:
            print("ingested:")
            relay.ingest(page, kind="official")
            shown(relay)

            print("updated; what the page does not say any more is STALE:")
            page.write_text(SECOND, encoding="utf-8")
            report = relay.ingest(page)
            shown(relay)

            print("quarantined until somebody reviewed it; no search finds it:")
            relay.fabric.quarantine(report.facts, "Is it 60 days everywhere?")
            shown(relay)
            relay.fabric.lift(report.facts)

            print("erased; the proof is an event of the journal:")
            erasure = relay.fabric.erase(report.sources[0])
            shown(relay)
            print(f"  {len(erasure.facts)} facts, event {erasure.event_seq}, {erasure.event_hmac}")

            found = relay.fabric.doctor()
            trail = relay.verify()
            print(f"whole: {not found.findings}, {trail.events} events of the journal verify")


if __name__ == "__main__":
    main()
