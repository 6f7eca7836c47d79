"""LiteLLM: a router whose every attempt gets the context packed for the model it really tries.

In: a LiteLLM `model_list` and a `Relay`. Out: LiteLLM's own responses with the proof in
`response.crp`. Read `router.py` (the front), `deployments.py` (a turn's calls through the router),
`hook.py` (packing again for each attempt), `wire.py` (messages and arguments in), then `attach.py`
(answer and proof out). The room sends nothing of CRP to a provider.
"""

from crp_integrations.litellm.attach import CRPStream
from crp_integrations.litellm.router import CRPRouter

__all__ = ["CRPRouter", "CRPStream"]
