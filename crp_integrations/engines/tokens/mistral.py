"""Mistral's newer vocabularies: tekken files, through tiktoken."""

from __future__ import annotations

import base64
import json

from crp_integrations.engines.tokens.tiktoken import TiktokenEncoder, from_ranks
from crp_integrations.errors import ConfigError
from crp_integrations.seals import sha256_hex


def tekken(data: bytes, *, name: str) -> TiktokenEncoder:
    """An encoder from the bytes of a `tekken.json`.

    Args:
        data: the file; of its vocabulary only the first `default_vocab_size` minus
            `default_num_special_tokens` entries are in use.

    Raises:
        ConfigError: the bytes are no such file.
    """
    try:
        content = json.loads(data)
        config = content["config"]
        size = int(config["default_vocab_size"]) - int(config["default_num_special_tokens"])
        ranks = {
            base64.b64decode(entry["token_bytes"]): int(entry["rank"])
            for entry in content["vocab"][:size]
        }
        pattern = str(config["pattern"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"the tokenizer file {name} is no tekken file, wanted one") from error
    return TiktokenEncoder(from_ranks(name, ranks, pattern), vocabulary_hash=sha256_hex(data))
