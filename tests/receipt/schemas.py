"""The published JSON schemas (2020-12) of the files of receipts: `docs/schemas/receipt*.json`.

Run `python -m tests.receipt.schemas FOLDER` to write them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from crp_integrations.receipt import bundle
from crp_integrations.receipt.canonical import BASE64, HASH, TEXT, object_schema
from crp_integrations.receipt.ledger import (
    CONSISTENCY,
    HEAD,
    HEAD_SCHEMA,
    HEAD_TYPE,
    PROOF,
)
from crp_integrations.receipt.predicate import OPTIONAL, SCHEMA, Content
from crp_integrations.receipt.records import SCHEMA as RECEIPT
from crp_integrations.receipt.records import OmissionReason
from crp_integrations.receipt.signed_statement import (
    CHAIN,
    IN_TOTO,
    MOST_SIGNATURES,
    PREDICATE_TYPE,
    SUBJECTS,
    TYPE,
)

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
# An absolute URI, since a reference from one schema to the other is resolved against it.
ROOT: Final = "https://crp-integrations.dev/schemas/"


def content_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the predicate's `content` as it is signed."""
    made = Content.model_json_schema()
    made["properties"]["schema"] = {"const": SCHEMA}
    # A writer writes every key, and `repaired` where an answer was repaired.
    made["required"] = sorted(made["properties"].keys() - OPTIONAL)
    return {"$schema": _DRAFT, "$id": ROOT + SCHEMA, **made}


def bundle_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of a bundle; `$defs` has its members and what is signed in them."""
    text, digest, encoded = TEXT.schema, HASH.schema, BASE64.schema
    number = {"type": "integer", "minimum": 0}
    salt = {"salt": encoded}
    leaves = (
        object_schema({"fact": text, "hash": digest}),
        object_schema(
            {
                "follows": {"type": "boolean"},
                "hash": digest,
                "name": text,
                "of": _list_of(number),
                "parts": _list_of({"anyOf": [text, number, _list_of(number)]}),
            }
        ),
    )
    predicate = {
        "chain": CHAIN.schema,
        "content": {"$ref": ROOT + SCHEMA},
        "digest": digest,
        "texts": object_schema({"leaves": _list_of({"anyOf": leaves}), "root": digest}),
    }
    subject = {"digest": object_schema({"sha256": digest}), "name": {"enum": SUBJECTS}}
    shown = [object_schema(salt), object_schema({**salt, "text": text})]
    texts = [{"enum": [*OmissionReason]}, *shown]
    definitions = {
        "receipt": _file_of(
            RECEIPT, envelope=_envelope(IN_TOTO), key=encoded, texts=_list_of({"anyOf": texts})
        ),
        "statement": object_schema(
            {
                "_type": {"const": TYPE},
                "predicate": object_schema(predicate),
                "predicateType": {"const": PREDICATE_TYPE},
                "subject": _list_of(object_schema(subject)),
            }
        ),
        "proof": PROOF.schema,
        "consistency": CONSISTENCY.schema,
        "head": _file_of(HEAD_SCHEMA, envelope=_envelope(HEAD_TYPE), key=encoded),
        "headPayload": HEAD.schema,
        "keys": _file_of(bundle.KEYS_SCHEMA, envelope=_envelope(bundle.KEYS_TYPE)),
        "keysPayload": bundle.KEYS.schema,
    }
    members = {name: {"$ref": f"#/$defs/{name}"} for name in ("head", "keys", "proof", "receipt")}
    whole = _file_of(
        bundle.SCHEMA,
        **members,
        mediaType={"const": bundle.MEDIA_TYPE},
        timestamp={"anyOf": [encoded, {"type": "null"}]},
    )
    return {"$schema": _DRAFT, "$id": ROOT + bundle.SCHEMA, **whole, "$defs": definitions}


def _list_of(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _file_of(schema: str, **members: Any) -> dict[str, Any]:
    return object_schema({"schema": {"const": schema}, **members})


def _envelope(payload_type: str) -> dict[str, Any]:
    """The schema of a DSSE envelope."""
    signatures = _list_of(object_schema({"keyid": HASH.schema, "sig": BASE64.schema}))
    return object_schema(
        {
            "payload": BASE64.schema,
            "payloadType": {"const": payload_type},
            "signatures": {**signatures, "minItems": 1, "maxItems": MOST_SIGNATURES},
        }
    )


PUBLISHED: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "receipt-content.schema.json": content_schema,
    "receipt-bundle.schema.json": bundle_schema,
}


def published(name: str) -> str:
    """The text of a published file."""
    schema = PUBLISHED[name]()
    return json.dumps(schema, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    for file_name in PUBLISHED:
        (Path(sys.argv[1]) / file_name).write_text(published(file_name), encoding="utf-8")
