"""Token counters, chosen by a model's name; a counter says how far it can be trusted.

Read `counter_choice` first (the door, `counter_for`), then `model_families` (which name means
what), `vocabulary_files` (where vocabularies lie on this machine), `chat_formats` (tokens around
messages and tools), `counters` and `encoders`.

What makes a count exact: OpenAI models need `litellm` or `llama-index-core`, whose wheels
hold the vocabularies; Mistral models need `mistral-common`, and the older ones `sentencepiece`
(extra `tokenizers`); Claude 2 needs `litellm`, DeepSeek `litellm` 1.109 or newer; Llama 3 and 4
need `llama-models` and Qwen `dashscope`, which a user may install; every other model needs its
tokenizer file. Claude 3 and later and Gemini publish no tokenizer, so their counts stay
estimates. Nothing is downloaded and no text is truncated.

Spec: CRP-SPEC-003 §10.1
"""

from crp_integrations.engines.tokens.counters import LazyCounter, counter_for

__all__ = ["LazyCounter", "counter_for"]
