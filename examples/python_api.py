"""The whole path in Python: ingest, ask, and read what the answer rests on.

Run it as it stands: `python examples/python_api.py`. It needs no key: the extractive model
answers by quoting the context. Name any LiteLLM model to have that one answer instead.
"""

import tempfile
from pathlib import Path

from crp_integrations import Relay, examine, pack

NOTES = """# Meridian

The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts to the grid.

The Meridian reactor is operated by Northfield Energy under a licence that ends in 2059.
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes.md"
        notes.write_text(NOTES)
        with Relay.open(Path(folder) / "kb") as relay:
            relay.ingest(notes, kind="official")
            answer = relay.ask("How much power does the Meridian reactor deliver?")
        print(answer.text)
        print("tier:", answer.envelope.quality_tier, [cap.reason for cap in answer.envelope.caps])
        print("risk:", answer.report.risk_level, answer.report.risk_score)
        print("sealed:", answer.headers["CRP-Provenance-HMAC"])

    # Without any store: pack facts for a model, check an answer against a context.
    question = "How much power does the reactor deliver?"
    facts = ["The reactor delivers 412 megawatts.", "Tulips grow in the valley."]
    envelope = pack(question, facts, model="gpt-4o", budget_tokens=1000)
    print(envelope.token_count, "tokens:", envelope.text)
    report = examine("The reactor delivers 512 megawatts.", context=facts, question=question)
    print(report.risk_level, report.distortion_types)


if __name__ == "__main__":
    main()
