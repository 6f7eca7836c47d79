"""LiteLLM: a router that packs the context of every attempt for the model that it tries.

Input: LiteLLM's list of models and a `Relay`. Output: LiteLLM's own responses with the report in
their attribute `crp`. Read `router.py` (the entry point), `deployments.py` (a turn's calls through
the router), `attempt_packing.py` (packing again for each attempt), `response_metadata.py` (answer
and proof on the response), `logger.py` (reports only) and `proxy.py` (for LiteLLM's proxy). No
module sends CRP metadata to a provider.
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
    """Import `CRPProxyHook` on first use, since it needs the proxy's libraries."""
    if name != "CRPProxyHook":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module("crp_integrations.litellm.proxy").CRPProxyHook
    except ModuleNotFoundError as error:
        if error.name != "fastapi":
            raise
        from crp_integrations.errors import MissingExtra

        raise MissingExtra("proxy", "crp_integrations.litellm.CRPProxyHook") from error
