"""The chat formats of the families, each number with its source.

Where several versions of a format are in use, the numbers are those of the dearest. Where a
number is not published, it is a cautious guess and says so; a guess is on the high side.
"""

from __future__ import annotations

from typing import Final

from crp_integrations.engines.tokens.overhead import ChatFormat
from crp_integrations.engines.tokens.schemas import (
    as_indented_json,
    as_json_lines,
    as_json_list,
    as_typescript,
)

# Messages and names: OpenAI's cookbook, "How to count tokens with tiktoken", chat models since
# gpt-3.5-turbo-0613. Tools: 9 tokens around the namespace reproduce the counts of the API that
# are known (the tests hold them). Calls and results: not published; 3 were seen.
OPENAI: Final = ChatFormat(
    "OpenAI", message=3, field=1, call=8, result=4, reply=3, tools=9, definitions=as_typescript
)

# OpenAI's harmony format, which open-weight servers render. Each message has three markers, an
# answer also its channel; a call or result names channel, recipient and content type. The system
# message is fixed; ours stands under a heading of its own.
HARMONY: Final = ChatFormat(
    "harmony",
    message=6,
    field=2,
    call=16,
    result=12,
    reply=12,
    tools=40,
    definitions=as_typescript,
    opening=(
        "You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-31\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every "
        "message.\nCalls to these tools must go to the commentary channel: 'functions'."
    ),
)

# mistral-common's own encoders v1 to v7, which the tests compare with. v1 writes its markers
# as text: [INST] and [/INST] are nine tokens there and two from v2 on.
MISTRAL_V1: Final = ChatFormat(
    "Mistral v1", message=12, field=1, call=4, result=4, reply=1, tools=4, definitions=as_json_list
)
MISTRAL: Final = ChatFormat(
    "Mistral", message=5, field=1, call=4, result=4, reply=1, tools=4, definitions=as_json_list
)

# Meta's `llama_models` ChatFormat: two header markers, an empty line and an end marker; the
# answer's header is open. The template of Llama 3.1 adds dates to the system message, or makes
# one, and about 70 tokens of words around indented definitions.
LLAMA: Final = ChatFormat(
    "Llama 3",
    message=5,
    field=1,
    call=4,
    result=2,
    reply=12,
    tools=100,
    definitions=as_indented_json,
    opening="Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024",
)

# Qwen's template (ChatML): two markers, two line ends; a system message of 20 tokens when none
# is given; about 110 tokens of words around the definitions in Qwen2.5 and Qwen3, and 196 in
# Qwen3.5 as LiteLLM's table has it.
CHATML: Final = ChatFormat(
    "Qwen", message=5, field=2, call=12, result=12, reply=30, tools=200, definitions=as_json_lines
)

# DeepSeek's template has one marker a message and an end marker; 222 tokens around the
# definitions as LiteLLM's table has it.
DEEPSEEK_CHAT: Final = ChatFormat(
    "DeepSeek", message=3, field=2, call=12, result=8, reply=4, tools=225, definitions=as_json_lines
)

# Claude 2 is sent "\n\nHuman:" and "\n\nAssistant:" as text. Its tools were never published;
# the number is that of Claude 3 Opus.
CLAUDE_TEXT: Final = ChatFormat(
    "Claude 2",
    message=8,
    field=2,
    call=40,
    result=40,
    reply=8,
    tools=530,
    definitions=as_indented_json,
)

# Anthropic's page on tool use names 159 to 530 tokens for its system prompt, by model; the rest
# of the format is not published, so it is a guess.
CLAUDE: Final = ChatFormat(
    "Claude",
    message=8,
    field=2,
    call=40,
    result=40,
    reply=8,
    tools=530,
    definitions=as_indented_json,
)

# Unpublished formats get the most that was seen in the published ones.
GENERIC: Final = ChatFormat(
    "unpublished",
    message=5,
    field=2,
    call=16,
    result=12,
    reply=12,
    tools=225,
    definitions=as_indented_json,
)
