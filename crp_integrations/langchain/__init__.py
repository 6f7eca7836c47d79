"""LangChain and LangGraph: retrieve, pack, answer and check in the chains and agents that exist.

In: any chain, agent or graph. Out: the same with documents that fit a token budget and answers that
carry a report, or are withheld before a stream shows them. Read `retrieval.py`; `runnable.py` with
`messages.py` and `model.py`; `callbacks.py` with `runs.py`; `gate.py`; `middleware.py` with
`model_calls.py`; `chat_model.py`; `vector_store.py`; `store.py`;
`evaluator.py`. The room never puts CRP metadata into a prompt and never alters a model's text.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import langchain_core  # noqa: F401 - asked for by name so that the error says what to install
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

# What needs more than langchain-core, and seconds to import.
_LATER = {
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
    """A name that is imported when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _LATER[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("langchain", "langgraph"):
            raise
        from crp_integrations.errors import MissingExtra

        raise MissingExtra(extra, f"crp_integrations.langchain.{name}") from error
