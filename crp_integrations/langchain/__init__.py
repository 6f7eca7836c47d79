"""LangChain and LangGraph: retrieve, pack, answer and check in existing chains and agents.

Input: any chain, agent or graph. Output: its documents packed to fit a token budget, its answers
with a report attached, or withheld before a stream shows them. Read `retrieval.py`;
`runnable.py` with `messages.py` and `model.py`; `callbacks.py` with `runs.py`; `gate.py`;
`middleware.py` with `model_calls.py` and `action_review.py`; `chat_model.py`; `vector_store.py`;
`store.py`; `evaluator.py`. No module puts CRP metadata into a prompt, or alters a model's text
unless `on_flag` has it repaired.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import langchain_core  # noqa: F401 - imported here so that the error says what to install
except ImportError as error:
    from crp_integrations.errors import MissingExtra

    raise MissingExtra("langchain", "crp_integrations.langchain") from error

from crp_integrations.engines.rerankers import LangChainReranker
from crp_integrations.langchain.callbacks import DPECallbackHandler
from crp_integrations.langchain.chat_model import CRPChatModel
from crp_integrations.langchain.evaluator import crp_evaluator
from crp_integrations.langchain.gate import CRPGate
from crp_integrations.langchain.messages import envelope_text, report_of
from crp_integrations.langchain.retrieval import CRPDocumentCompressor, CRPRetriever
from crp_integrations.langchain.runnable import CRPRunnable
from crp_integrations.langchain.vector_store import CRPVectorStore, FabricEmbeddings

if TYPE_CHECKING:
    from crp_integrations.langchain.memory_emission import EmittingMiddleware
    from crp_integrations.langchain.middleware import CRPMiddleware
    from crp_integrations.langchain.store import CRPDocumentStore, CRPStore

# Imported on first use: these need more than langchain-core, and take seconds to import.
_LAZY = {
    "CRPDocumentStore": ("crp_integrations.langchain.store", "langgraph"),
    "CRPMiddleware": ("crp_integrations.langchain.middleware", "langgraph"),
    "CRPStore": ("crp_integrations.langchain.store", "langgraph"),
    "EmittingMiddleware": ("crp_integrations.langchain.memory_emission", "langgraph"),
}

__all__ = [
    "CRPChatModel",
    "CRPDocumentCompressor",
    "CRPDocumentStore",
    "CRPGate",
    "CRPMiddleware",
    "CRPRetriever",
    "CRPRunnable",
    "CRPStore",
    "CRPVectorStore",
    "DPECallbackHandler",
    "EmittingMiddleware",
    "FabricEmbeddings",
    "LangChainReranker",
    "crp_evaluator",
    "envelope_text",
    "report_of",
]


def __getattr__(name: str) -> Any:
    """Import a name of `_LAZY` when it is first used."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _LAZY[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("langchain", "langgraph"):
            raise
        from crp_integrations.errors import MissingExtra

        raise MissingExtra(extra, f"crp_integrations.langchain.{name}") from error
