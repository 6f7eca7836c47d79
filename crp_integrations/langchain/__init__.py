"""LangChain and LangGraph: retrieve, pack, answer and check in the chains and agents that exist.

In: any chain, agent or graph. Out: the same with documents that fit a token budget and answers
that carry a report, or are withheld before a stream shows them. Read `retriever.py` with
`documents.py` and `compressor.py`; `runnable.py` with `wire.py`, `model.py` and `sessions.py`;
`callbacks.py` with `listening.py` and `ancestry.py`; `gate.py` with `silence.py`; `middleware.py`
with `model_calls.py`, `compacting.py`, `results.py` and `agents.py`; `emitting.py`;
`chat_model.py`; then `vector_store.py` with `embeddings.py`, and `reranker.py`; `store.py` with
`storing.py` and `matching.py`, and `document_store.py`, which keep what they are given by `kept.py`
and `values.py`; and `evaluator.py`.
The room never puts CRP metadata into a prompt and never alters a model's text.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

try:
    import langchain_core  # noqa: F401 - asked for by name so that the error says what to install
except ImportError as error:
    from crp_integrations.errors import MissingExtra

    raise MissingExtra("langchain", "crp_integrations.langchain") from error

from crp_integrations.langchain.callbacks import DPECallbackHandler
from crp_integrations.langchain.chat_model import CRPChatModel
from crp_integrations.langchain.document_store import CRPDocumentStore
from crp_integrations.langchain.documents import envelope_text
from crp_integrations.langchain.evaluator import crp_evaluator
from crp_integrations.langchain.gate import CRPGate
from crp_integrations.langchain.retrieval import (
    CRPDocumentCompressor,
    CRPRetriever,
    LangChainReranker,
)
from crp_integrations.langchain.runnable import CRPRunnable
from crp_integrations.langchain.vector_store import CRPVectorStore, FabricEmbeddings

if TYPE_CHECKING:
    from crp_integrations.langchain.middleware import CRPMiddleware, EmittingMiddleware
    from crp_integrations.langchain.store import CRPStore

# What needs more than langchain-core, and seconds to import.
_LATER = {
    "CRPMiddleware": ("crp_integrations.langchain.middleware", "langgraph"),
    "CRPStore": ("crp_integrations.langchain.store", "langgraph"),
    "EmittingMiddleware": ("crp_integrations.langchain.middleware", "langgraph"),
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
