"""LlamaIndex: a node postprocessor that packs, and a vector store that is the fabric.

In: the nodes that a query engine retrieved. Out: copies of those that fit a token budget, in
the order in which the model should see them. Read `postprocessor.py`, then `events.py`, then
`vector_store.py` with `nodes.py` and `embedding.py`, and `reranker.py`. The room never changes
a caller's node and never puts CRP metadata into a prompt or embedding.
"""

try:
    import llama_index.core  # noqa: F401 - asked for by name so that the error says what to install
except ImportError as error:
    from crp_integrations.errors import MissingExtra

    raise MissingExtra("llama-index", "crp_integrations.llama_index") from error

from crp_integrations.llama_index.embedding import FabricEmbedding
from crp_integrations.llama_index.events import EnvelopeEvent
from crp_integrations.llama_index.postprocessor import CRPNodePostprocessor
from crp_integrations.llama_index.reranker import LlamaIndexReranker
from crp_integrations.llama_index.vector_store import CRPVectorStore

__all__ = [
    "CRPNodePostprocessor",
    "CRPVectorStore",
    "EnvelopeEvent",
    "FabricEmbedding",
    "LlamaIndexReranker",
]
