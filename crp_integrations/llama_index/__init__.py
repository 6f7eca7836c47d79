"""LlamaIndex: retrieve, pack, answer and check in the query engines and agents that exist.

In: any retriever, query engine or agent. Out: the same with nodes that fit a token budget and
answers that carry a report, or are withheld before a stream shows them. Read `retrieval.py` with
`nodes.py`; `query_engine.py` with `messages.py` and `model.py`; `handler.py` with `span_tree.py`
and `spans.py`; `agent_llm.py`; `llm.py`; `memory.py`; `vector_store.py`; and `evaluator.py`. The
room never changes a caller's node or message, never puts CRP metadata into a prompt or embedding
and never alters a model's text.
"""

try:
    import llama_index.core  # noqa: F401 - asked for by name so that the error says what to install
except ImportError as error:
    from crp_integrations.errors import MissingExtra

    raise MissingExtra("llama-index", "crp_integrations.llama_index") from error

from crp_integrations.engines.rerankers import LlamaIndexReranker
from crp_integrations.llama_index.agent_llm import CRPAgentLLM
from crp_integrations.llama_index.evaluator import CRPEvaluator
from crp_integrations.llama_index.handler import DPEEventHandler
from crp_integrations.llama_index.llm import CRPLLM
from crp_integrations.llama_index.memory import CRPMemoryBlock
from crp_integrations.llama_index.messages import report_of
from crp_integrations.llama_index.query_engine import CRPQueryEngine, CRPSynthesizer
from crp_integrations.llama_index.retrieval import CRPNodePostprocessor, CRPRetriever
from crp_integrations.llama_index.span_tree import DPESpanHandler
from crp_integrations.llama_index.spans import EmittingHandler, EnvelopeEvent, ReportEvent
from crp_integrations.llama_index.vector_store import CRPVectorStore, FabricEmbedding

__all__ = [
    "CRPLLM",
    "CRPAgentLLM",
    "CRPEvaluator",
    "CRPMemoryBlock",
    "CRPNodePostprocessor",
    "CRPQueryEngine",
    "CRPRetriever",
    "CRPSynthesizer",
    "CRPVectorStore",
    "DPEEventHandler",
    "DPESpanHandler",
    "EmittingHandler",
    "EnvelopeEvent",
    "FabricEmbedding",
    "LlamaIndexReranker",
    "ReportEvent",
    "report_of",
]
