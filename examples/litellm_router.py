"""A LiteLLM router that packs the context for each model it tries and checks the answer.

Run it as it stands: `python examples/litellm_router.py`. It needs no key: the first deployment
cannot be reached, so the router falls back to `extractive/best`, which quotes the context. Put
your own deployments in its place.
"""

import tempfile

from crp_integrations import Relay
from crp_integrations.litellm import CRPRouter

FACTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "Gardens in the valley grow tulips and roses every spring.",
]

DEPLOYMENTS = [
    {
        "model_name": "main",
        # Nobody listens on this port; a real entry names a model and a key.
        "litellm_params": {
            "model": "openai/gpt-4o-mini",
            "api_base": "http://127.0.0.1:9/v1",
            "api_key": "none",
            "max_retries": 0,
        },
    },
    {"model_name": "quotes", "litellm_params": {"model": "extractive/best"}},
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Relay.open(folder) as relay:
        relay.fabric.add(FACTS)
        router = CRPRouter(
            DEPLOYMENTS, relay=relay, fallbacks=[{"main": ["quotes"]}], num_retries=0
        )

        question = "How much power does the Meridian reactor deliver?"
        response = router.completion("main", [{"role": "user", "content": question}])

        print(response.choices[0].message.content)
        envelope, report = response.crp_envelope, response.crp
        print(f"\nmodel: {envelope['model']}, tokens counted by {envelope['tokenizer']}")
        facts, tokens = len(envelope["facts"]), envelope["token_count"]
        print(f"envelope: {facts} facts, {tokens} tokens, tier {envelope['quality_tier']}")
        print(f"verdict: risk {report['risk_level']}, grounded {report['grounding_pct']:.0%}")
        for claim in report["claims"]:
            print(f"  {claim['claim_type']}, {claim['attribution']}: {claim['text']}")


if __name__ == "__main__":
    main()
