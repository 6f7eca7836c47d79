"""Names of attributes: OpenTelemetry's GenAI conventions, OpenInference's, and our own.

They are of OpenTelemetry's semantic conventions for generative AI (Development) and of
OpenInference 0.1, written out, since both packages of constants call these names unstable.
"""

from __future__ import annotations

from functools import cache
from typing import Final

# OpenTelemetry, GenAI.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
ERROR_TYPE: Final = "error.type"
DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
# The buckets that the conventions give for the two metrics.
DURATION_BOUNDS: Final = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
TOKEN_BOUNDS: Final = (
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
)  # fmt: skip

# OpenInference.
KIND: Final = "openinference.span.kind"
SESSION: Final = "session.id"
DOCUMENTS: Final = "retrieval.documents"
DOCUMENT_ID: Final = "document.id"
DOCUMENT_SCORE: Final = "document.score"
DOCUMENT_METADATA: Final = "document.metadata"
MODEL_NAME: Final = "llm.model_name"
PROMPT_TOKENS: Final = "llm.token_count.prompt"
COMPLETION_TOKENS: Final = "llm.token_count.completion"
TOTAL_TOKENS: Final = "llm.token_count.total"
COST: Final = "llm.cost.total"

# Ours.
OWN: Final = "crp."
STOPPED: Final = "crp.stopped"
# The kind of span of a step, by the beginning of its name; the others are parts of a chain.
KINDS: Final = (
    ("agent.", "AGENT"),
    ("guard", "GUARDRAIL"),
    ("gather", "RETRIEVER"),
    ("rerank", "RERANKER"),
    ("dpe.", "EVALUATOR"),
    ("fabric.embed", "EMBEDDING"),
)


@cache
def kind_of(step: str) -> str:
    """The OpenInference kind of a step.

    >>> kind_of("gather"), kind_of("dpe.4.entailment"), kind_of("close")
    ('RETRIEVER', 'EVALUATOR', 'CHAIN')
    """
    return next((kind for start, kind in KINDS if step.startswith(start)), "CHAIN")


def provider_of(model: str) -> str:
    """The provider of a model's string as LiteLLM takes it; `crp` for the extractive model.

    >>> provider_of("azure/gpt-4o"), provider_of("extractive"), provider_of("gpt-4o-mini")
    ('azure', 'crp', 'unknown')
    """
    if model == "extractive":
        return "crp"
    return model.partition("/")[0] if "/" in model else "unknown"
