"""LiteLLM: a router whose every attempt gets the context packed for the model it really tries.

In: a LiteLLM `model_list` and a `Relay`. Out: LiteLLM's own responses with the proof in
`response.crp`. Read `router.py` (the calls), `hook.py` (packing again for each attempt), then
`wire.py` (messages in, proof out). The room sends nothing of CRP to a provider.
"""

from crp_integrations.litellm.router import CRPRouter

__all__ = ["CRPRouter"]
