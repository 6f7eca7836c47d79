"""The gateway: the protocol over HTTP, in front of any OpenAI-compatible server.

In: OpenAI requests with CRP headers, from callers whose bearer keys are bound to a tenant. Out:
OpenAI responses with CRP headers, previews, facts, reports, trails and receipts of that tenant
alone. Read `app.py` (the routes), `endpoint.py` with `responses.py` (admission, limits, answers,
the access log), `tenants.py` (a relay per tenant, and the models) with `admission.py` (keys),
`request_bodies.py` and `chat_completions.py`, then `resources.py` and `server.py`. The gateway
never logs a text and never forwards a caller's headers to a model provider.
"""

try:
    import starlette  # noqa: F401 - imported first, so that the error can say what to install
    import uvicorn  # noqa: F401
except ImportError as error:
    from crp_integrations.errors import MissingExtra

    raise MissingExtra("gateway", "crp_integrations.gateway") from error

from crp_integrations.gateway.admission import Key, KeyFile, Scope
from crp_integrations.gateway.app import create_app
from crp_integrations.gateway.server import serve
from crp_integrations.gateway.settings import GatewaySettings
from crp_integrations.gateway.tenants import OpenAIServer, Routed

__all__ = [
    "GatewaySettings",
    "Key",
    "KeyFile",
    "OpenAIServer",
    "Routed",
    "Scope",
    "create_app",
    "serve",
]
