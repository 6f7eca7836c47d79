"""LangChain: a retriever that packs, a callback that checks, a vector store that is the fabric.

In: any chain. Out: the same chain with documents that fit a token budget and answers that
carry a report. Read `retriever.py`, `documents.py`, then `callbacks.py` with `ancestry.py`, and
`vector_store.py` with `embeddings.py`, and `reranker.py`.
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
from crp_integrations.langchain.compressor import CRPDocumentCompressor
from crp_integrations.langchain.documents import envelope_text
from crp_integrations.langchain.embeddings import FabricEmbeddings
from crp_integrations.langchain.gate import CRPGate
from crp_integrations.langchain.reranker import LangChainReranker
from crp_integrations.langchain.retriever import CRPRetriever
from crp_integrations.langchain.runnable import CRPRunnable
from crp_integrations.langchain.vector_store import CRPVectorStore

if TYPE_CHECKING:
    from crp_integrations.langchain.middleware import CRPMiddleware

# What needs more than langchain-core, and seconds to import.
_LATER = {"CRPMiddleware": ("crp_integrations.langchain.middleware", "langgraph")}

__all__ = [
    "CRPChatModel",
    "CRPDocumentCompressor",
    "CRPGate",
    "CRPMiddleware",
    "CRPRetriever",
    "CRPRunnable",
    "CRPVectorStore",
    "DPECallbackHandler",
    "FabricEmbeddings",
    "LangChainReranker",
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
