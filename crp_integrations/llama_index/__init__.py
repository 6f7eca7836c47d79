"""LlamaIndex: retrieve, pack, answer and check in existing query engines and agents.

Input: any retriever, query engine or agent. Output: its nodes packed to fit a token budget, its
answers with a report attached, or withheld before a stream shows them. Read `retrieval.py` with
`nodes.py`; `query_engine.py` with `messages.py` and `model.py`; `handler.py` with `span_tree.py`
and `spans.py`; `agent_llm.py` with `grounded_tools.py`; `llm.py`; `memory.py`; `vector_store.py`;
and `evaluator.py`. No module changes a caller's node or message, puts CRP metadata into a prompt
or embedding, or alters a model's text.
"""

try:
    import llama_index.core  # noqa: F401 - imported here so that the error says what to install
except ImportError as error:
    from crp_integrations.errors import MissingExtra

    raise MissingExtra("llama-index", "crp_integrations.llama_index") from error

from crp_integrations.engines.rerankers import LlamaIndexReranker
from crp_integrations.llama_index.agent_llm import CRPAgentLLM
from crp_integrations.llama_index.evaluator import CRPEvaluator
from crp_integrations.llama_index.gate import CRPGate
from crp_integrations.llama_index.grounded_tools import CRPAgentWorkflow
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
    "CRPAgentWorkflow",
    "CRPEvaluator",
    "CRPGate",
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
