"""What the tests of the LiteLLM adapter share: facts, entries of a model list, both ways to call."""

from __future__ import annotations

import asyncio
from typing import Any

from crp_integrations import Relay
from crp_integrations.litellm import CRPRouter
from tests.relay.judges import CONTRADICTED, scripted_judge
from tests.servers import Double

FACTS = [
    f"Plant {n} was built in {1950 + n}, delivers {400 + 3 * n} megawatts and is run by the "
    f"Northfield company under licence {7_000 + n} of the ministry of energy."
    for n in range(40)
]
QUESTION = "When was plant 7 built?"
ASKED = [{"role": "user", "content": QUESTION}]
GOOD = "Plant 7 was built in 1957."
BAD = (
    "Plant 7 was built in 2077, delivers 999 megawatts and is run by the Acme company under "
    "licence 9 of the ministry of energy."
)
# Reads every answer: those of the year 2077 are wrong, all others right.
JUDGE = scripted_judge({"2077": CONTRADICTED})
PROVIDERS = {"OpenAIShape": "openai", "AnthropicShape": "anthropic", "GeminiShape": "gemini"}
WAYS = ("completion", "acompletion", "stream")


def entry(server: Double, group: str, model: str, **more: Any) -> dict[str, Any]:
    """An entry of a model list; `info` is its `model_info`, the rest its parameters."""
    info = more.pop("info", {})
    provider = PROVIDERS[type(server.shape).__name__]
    return {
        "model_name": group,
        "litellm_params": {
            "model": f"{provider}/{model}",
            "api_base": server.url,
            "api_key": "sk-test",
            "max_retries": 0,
            **more,
        },
        "model_info": info,
    }


def router(relay: Relay, *entries: dict[str, Any], **options: Any) -> CRPRouter:
    return CRPRouter(list(entries), relay=relay, **{"num_retries": 0, **options})


def answered(how: str, called: CRPRouter, messages: Any = None, **options: Any) -> Any:
    """A response by the synchronous path, the asynchronous one, or as a stream read to its end."""
    messages = ASKED if messages is None else messages
    if how == "completion":
        return called.completion("main", messages, **options)
    if how == "acompletion":
        return asyncio.run(called.acompletion("main", messages, **options))

    async def streamed() -> Any:
        stream: Any = await called.acompletion("main", messages, stream=True, **options)
        stream.chunks = [chunk async for chunk in stream]
        return stream

    return asyncio.run(streamed())


def text(response: Any) -> str:
    if hasattr(response, "choices"):
        return response.choices[0].message.content
    return "".join(one.choices[0].delta.content or "" for one in response.chunks if one.choices)


def outcomes(relay: Relay, session: str) -> list[str]:
    """How the windows of a session ended."""
    with relay.fabric.begin(write=False) as transaction:
        return [seal.outcome for seal in transaction.journal.seals(session)]
