"""Token counters, chosen by a model's name; each states how far its counts can be trusted.

Read `counters` first (a counter for a model's name), then `vocabularies` (the vocabulary of each
model name, and where to find it on this machine), `chat_formats` (tokens around messages and
tools) and `encoders`.

Requirements for exact counts: OpenAI models need LiteLLM or llama-index-core, whose packages
contain the vocabularies; Mistral models need mistral-common, older ones also sentencepiece (both in
the extra for tokenizers); Claude 2 needs LiteLLM, DeepSeek LiteLLM 1.109 or newer; Llama 3 and 4
need llama-models and Qwen dashscope, which a user may install; every other model needs its
tokenizer file. Claude 3 and later and Gemini have no published tokenizer, so their counts are
estimates. Nothing is downloaded and no text is truncated.

Spec: CRP-SPEC-003 §10.1
"""

from crp_integrations.engines.tokens.counters import counter_for

__all__ = ["counter_for"]
