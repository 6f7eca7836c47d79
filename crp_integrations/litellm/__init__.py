"""LiteLLM: a router whose every attempt gets the context packed for the model it really tries.

In: LiteLLM's list of models and a `Relay`. Out: LiteLLM's own responses with the proof in their
attribute crp. Read `router.py` (the front), `deployments.py` (a turn's calls through the router),
`attempt_packing.py` (packing again for each attempt), then `response_metadata.py` (answer and proof
out); `logger.py`, which only looks on; `proxy.py`, for LiteLLM's proxy. The
room sends nothing of CRP to a provider.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crp_integrations.litellm.logger import CRPLogger
from crp_integrations.litellm.response_metadata import CRPStream
from crp_integrations.litellm.router import CRPRouter

if TYPE_CHECKING:
    from crp_integrations.litellm.proxy import CRPProxyHook

__all__ = ["CRPLogger", "CRPProxyHook", "CRPRouter", "CRPStream"]


def __getattr__(name: str) -> Any:
    """The hook, which needs the proxy's own libraries, when it is asked for."""
    if name != "CRPProxyHook":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("crp_integrations.litellm.proxy").CRPProxyHook
    except ModuleNotFoundError as error:
        if error.name != "fastapi":
            raise
        from crp_integrations.errors import MissingExtra

        raise MissingExtra("proxy", "crp_integrations.litellm.CRPProxyHook") from error
