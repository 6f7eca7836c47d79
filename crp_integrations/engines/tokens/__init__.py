"""Token counters: one file an engine, and the choice of one by model name.

Comes in: a model's name as LiteLLM takes it, and optionally the path of its tokenizer file.

Goes out: a `TokenCounter` that says how far it can be trusted: `exact` with the model's own
vocabulary, `family` with a relative's, `estimate` with a factor on top of another's.

Read in this order: `choose` (the door, `counter_for`), `families` (which name means what),
`offline` (where vocabularies lie on this machine), `patterns` (how some of them split a text),
`blocks` (where a text may be counted in parts), `formats`, `overhead` and `schemas` (tokens around
messages, and tools as families are sent them), `counted` (what all counters share), then the
engines `tiktoken`, `mistral`, `huggingface`, `sentencepiece`, `estimate`.

What makes a count exact: OpenAI models need `litellm` or `llama-index-core`, whose wheels
hold the vocabularies; Mistral models need `mistral-common`, and the older ones `sentencepiece`
(extra `tokenizers`); Claude 2 needs `litellm`, DeepSeek `litellm` 1.109 or newer; Llama 3 and 4
need `llama-models` and Qwen `dashscope`, which a user may install; every other model needs its
tokenizer file. Claude 3 and later and Gemini publish no tokenizer, so their counts stay
estimates.

The room never downloads anything, never sets an environment variable and never truncates a
text.

Spec: CRP-SPEC-003 §10.1
"""

from crp_integrations.engines.tokens.choose import counter_for
from crp_integrations.engines.tokens.later import LaterCounter

__all__ = ["LaterCounter", "counter_for"]
