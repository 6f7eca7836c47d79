"""Token counters, chosen by a model's name; a counter says how far it can be trusted.

Read `counters` first (a counter for a model's name), then `vocabularies` (which name means what,
and where vocabularies lie on this machine), `chat_formats` (tokens around messages and tools) and
`encoders`.

What makes a count exact: OpenAI models need LiteLLM or llama-index-core, whose wheels hold the
vocabularies; Mistral models need mistral-common, and the older ones sentencepiece (both in the
extra for tokenizers); Claude 2 needs LiteLLM, DeepSeek LiteLLM 1.109 or newer; Llama 3 and 4 need
llama-models and Qwen dashscope, which a user may install; every other model needs its
tokenizer file. Claude 3 and later and Gemini publish no tokenizer, so their counts stay
estimates. Nothing is downloaded and no text is truncated.

Spec: CRP-SPEC-003 §10.1
"""

from crp_integrations.engines.tokens.counters import counter_for

__all__ = ["counter_for"]
