"""Verify a receipt without this package: plain Python and `cryptography`.

    python examples/verify_receipt.py RECEIPT [--key HEX64] [--prompt]

Each check prints a line; the exit status is 1 when one fails. `--key` is the SHA-256 of the public
key that you expect, from another source than the file. `--prompt` also prints the recomputed
messages of each call, byte for byte. The format is described in docs/reference/receipt.md.

Level and score are checked against the claims' statuses, which are taken as they stand.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

LEVELS = ("LOW", "UNKNOWN", "MEDIUM", "HIGH", "CRITICAL")
SPECIFIC = ("DATE", "INVENTION", "NAME", "NUMBER", "UNIT")
DOUBTS = ("HIDDEN_TEXT", "contradiction")
# In millionths: the score of a level, and what each further claim above UNKNOWN adds.
SCORES = {"LOW": 50_000, "MEDIUM": 300_000, "HIGH": 550_000, "CRITICAL": 800_000}
FURTHER, MOST_FURTHER = 10_000, 10
UNSUPPORTED = {"context-strict": "HIGH", "context-preferred": "MEDIUM", "open": "LOW"}
NOT_CHECKED = "the statuses by the judge's replies, its ids, prompt and context, chain and log"

NAME_WORD = re.compile(r"[^\W\d_]{3,}")


class Broken(Exception):
    """A check that fails, with its place in the file."""


def canonical(value: Any) -> bytes:
    """RFC 8785 for values without floats: no white space, keys in order, few escapes."""
    return json.dumps(
        value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode()


def from_base64(text: str, place: str) -> bytes:
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data).decode() != text:
        raise Broken(f"{place}: the base64 is not in its one form")
    return data


def from_canonical(data: bytes, place: str) -> Any:
    value = json.loads(data)
    if canonical(value) != data:
        raise Broken(f"{place}: this is not canonical JSON")
    return value


def tree_root(hashes: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1: the tree is split at the largest power of two below its size."""
    if len(hashes) == 1:
        return hashes[0]
    half = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + tree_root(hashes[:half]) + tree_root(hashes[half:])).digest()


class Receipt:
    """A receipt's file, its payload, and the text of each leaf; None for a text left out."""

    def __init__(self, data: bytes) -> None:
        if not data.endswith(b"\n"):
            raise Broken("file: it does not end with a line feed")
        self.file = from_canonical(data[:-1], "file")
        if self.file["schema"] != "receipt/1":
            raise Broken(
                f"file: its schema is {self.file['schema']}, wanted receipt/1; from a bundle, take "
                "its field receipt as canonical JSON with a line feed, or export without --bundle"
            )
        if not self.file["envelope"]["signatures"]:
            raise Broken("file: it has no signature")
        self.payload = from_base64(self.file["envelope"]["payload"], "payload")
        self.statement = from_canonical(self.payload, "payload")
        self.content = self.statement["predicate"]["content"]
        self.leaves = self.statement["predicate"]["texts"]["leaves"]
        if len(self.file["texts"]) != len(self.leaves):
            raise Broken("texts: there is not one for each leaf")
        own = [
            entry.get("text") if isinstance(entry, dict) else None for entry in self.file["texts"]
        ]
        self.texts = [
            own[number] if not leaf.get("parts") else composed(leaf["parts"], own)
            for number, leaf in enumerate(self.leaves)
        ]

    def named(self, name: str) -> int:
        """The number of the leaf of this name."""
        return next(at for at, leaf in enumerate(self.leaves) if leaf.get("name") == name)


def composed(parts: list[Any], texts: list[str | None]) -> str | None:
    """A text from its parts: literals, whole leaves by number, and stretches of a leaf."""
    pieces: list[str] = []
    for part in parts:
        number, start, end = part if isinstance(part, list) else (part, 0, None)
        text = part if isinstance(part, str) else texts[number]
        if text is None:
            return None
        pieces.append(text[start:end])
    return "".join(pieces)


def check_signature(receipt: Receipt, expected: str | None) -> str:
    # Further signatures are of countersigners, whose keys the file does not contain.
    key, signature = (
        from_base64(receipt.file["key"], "key"),
        receipt.file["envelope"]["signatures"][0],
    )
    keyid = hashlib.sha256(key).hexdigest()
    if keyid != signature["keyid"]:
        raise Broken("key: its SHA-256 is not the key id")
    kind = receipt.file["envelope"]["payloadType"].encode()
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(receipt.payload), receipt.payload)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(from_base64(signature["sig"], "sig"), signed)
    except InvalidSignature:
        raise Broken("signatures[0].sig: it does not fit payload and key") from None
    if expected is None:
        return f"by key {keyid}, which the file itself names"
    if keyid != expected:
        raise Broken(f"key: it is {keyid}, wanted {expected}")
    return "by the key that you expect"


def check_tree(receipt: Receipt) -> str:
    hashes = [bytes.fromhex(leaf["hash"]) for leaf in receipt.leaves]
    if tree_root(hashes).hex() != receipt.statement["predicate"]["texts"]["root"]:
        raise Broken("texts.root: it is not the root of the leaves")
    for subject in receipt.statement["subject"]:
        if subject["digest"]["sha256"] != receipt.leaves[receipt.named(subject["name"])]["hash"]:
            raise Broken(f"subject {subject['name']}: its digest is not its leaf's hash")
    rest = {**receipt.statement["predicate"]}
    if rest.pop("digest") != hashlib.sha256(canonical(rest)).hexdigest():
        raise Broken("predicate.digest: it is not the hash of the predicate without it")
    return f"{len(hashes)} leaves; request, context and answer are among them"


def check_texts(receipt: Receipt) -> str:
    shown = 0
    for number, (entry, leaf) in enumerate(zip(receipt.file["texts"], receipt.leaves, strict=True)):
        if isinstance(entry, str):
            continue
        text, salt = receipt.texts[number], from_base64(entry["salt"], f"texts[{number}].salt")
        if text is None:
            raise Broken(f"texts[{number}]: it is composed of a text that is not here")
        if hashlib.sha256(b"\0" + salt + text.encode()).hexdigest() != leaf["hash"]:
            raise Broken(f"texts[{number}]: it does not have its leaf's hash")
        shown += 1
    return f"{shown} of {len(receipt.leaves)} are here"


def check_selection(receipt: Receipt) -> str:
    """Each candidate is either shown, once, or dropped with a reason."""
    envelope = receipt.content["envelope"]
    if envelope is None:
        return "no context was packed"
    count = len(receipt.content["candidates"])
    places = sorted(item["at"] for item in (*envelope["facts"], *envelope["dropped"]))
    if places != list(range(count)):
        raise Broken(f"envelope: {len(places)} candidates are shown or dropped, wanted {count}")
    ids = sorted(receipt.content["candidates"][fact["at"]]["id"] for fact in envelope["facts"])
    etag = hashlib.sha256(f"{'|'.join(ids)}|{len(ids)}".encode()).hexdigest()
    salted = receipt.content["fit"] is not None and receipt.content["fit"]["salted"]
    if not salted and envelope["etag"] != f"sha256:{etag}":
        raise Broken("envelope.etag: it is not the hash of the facts' ids")
    return f"{len(ids)} of {count} candidates are shown"


def check_seal(receipt: Receipt) -> str:
    """The seal names the hash of the answer, and the policy that of its text."""
    policy = receipt.content["policy"]
    if f"sha256:{hashlib.sha256(policy['text'].encode()).hexdigest()}" != policy["hash"]:
        raise Broken("policy.hash: it is not the hash of the policy's text")
    seal, answer = receipt.texts[receipt.content["seal"]], receipt.texts[receipt.named("answer")]
    if seal is None or answer is None:
        return "the answer is not in this copy"
    if json.loads(seal)["response_hash"] != f"sha256:{hashlib.sha256(answer.encode()).hexdigest()}":
        raise Broken("seal.response_hash: it is not the hash of the answer")
    return "answer and policy have their hashes"


def check_level(receipt: Receipt) -> str:
    """Level, score and counts follow from the claims' statuses (ADR 57)."""
    report, examined = receipt.content["report"], receipt.content["examined"]
    if receipt.content["settings"]["dpe"]["decides"] != "claims":
        return "not derived from claims: the preset is literal"
    claims = report["claims"]
    own = own_data(receipt)
    levels = [level_of(claim, own, receipt.content) for claim in claims]
    worst = max(["LOW", *levels], key=LEVELS.index)
    if any(len(conflict.get("claims", [])) > 1 for conflict in conflicts_of(receipt)):
        worst = max(worst, "MEDIUM", key=LEVELS.index)
    answer = receipt.texts[examined["answer"]]
    # Reasoning alone is no answer.
    if not claims or (answer is not None and not any(sign.isalnum() for sign in answer)):
        worst = max(worst, "UNKNOWN", key=LEVELS.index)
    if worst != report["risk_level"]:
        raise Broken(f"report.risk_level: it is {report['risk_level']}, by the claims {worst}")
    statuses = [claim["status"] for claim in claims]
    wrong = sum(status in ("CONTRADICTED", "UNSUPPORTED") for status in statuses)
    counted = sum(
        level not in ("LOW", "UNKNOWN") or status == "UNSUPPORTED"
        for level, status in zip(levels, statuses, strict=True)
    )
    score = None
    if worst in SCORES:
        score = SCORES[worst] + FURTHER * min(counted, MOST_FURTHER)
    if report["risk_score"] != score:
        raise Broken(f"report.risk_score: it is {report['risk_score']}, by the claims {score}")
    supported, unread = statuses.count("SUPPORTED"), statuses.count("NOT_CHECKED")
    counts = {"read": supported + wrong, "supported": supported, "unread": unread, "wrong": wrong}
    if report["claim_counts"] != counts:
        raise Broken(
            f"report.claim_counts: they are {report['claim_counts']}, by the claims {counts}"
        )
    return f"{worst} follows from {len(claims)} claims"


def level_of(claim: dict[str, Any], own: list[dict[str, Any]], content: dict[str, Any]) -> str:
    """The level of one claim."""
    report, examined = content["report"], content["examined"]
    doubted = any(finding["kind"] in DOUBTS for finding in claim["findings"])
    if claim["disputed"]:
        return "MEDIUM"
    level = "MEDIUM" if doubted else "LOW"
    if claim["status"] == "CONTRADICTED":
        high_risk = report["eu_ai_act_class"] == "HIGH" and examined["system"]["domain"] is not None
        level = "CRITICAL" if high_risk or is_personal(claim, own, report) else "HIGH"
    elif claim["status"] == "UNSUPPORTED":
        specific = claim.get("error") in SPECIFIC
        status_level = "HIGH" if specific else UNSUPPORTED[examined["grounding"]]
        level = max(level, status_level, key=LEVELS.index)
    elif claim["status"] == "NOT_CHECKED":
        level = max(level, "UNKNOWN", key=LEVELS.index)
    return level


def is_personal(claim: dict[str, Any], own: list[dict[str, Any]], report: dict[str, Any]) -> bool:
    """Whether the claim, or another one of its sentence, has such data."""
    near = [
        other
        for other in report["claims"]
        if other is claim or other["sentence_index"] == claim["sentence_index"] >= 0
    ]
    return any(
        item["start"] < other["end"] and other["start"] < item["end"]
        for item in own
        for other in near
    )


def own_data(receipt: Receipt) -> list[dict[str, Any]]:
    """Personal data of the answer that neither the passages nor the question contain."""
    report, examined = receipt.content["report"], receipt.content["examined"]
    answer, question = receipt.texts[examined["answer"]], examined["question"]
    known = [] if question is None else [receipt.texts[question]]
    if examined["passages"] is None:
        known.append(receipt.texts[receipt.named("context")])
    known += [composed(item["pieces"], receipt.texts) for item in examined["passages"] or ()]
    data = [item for item in report["personal"]["found"] if item["where"] == "answer"]
    if answer is None or None in known:
        return data
    text = "\n".join(part for part in known if part is not None)
    return [item for item in data if not is_repeated(answer[item["start"] : item["end"]], text)]


def is_repeated(datum: str, text: str) -> bool:
    """Whether a text contains a datum: a name by its words, anything else by its characters."""
    if not NAME_WORD.search(datum) or re.search(r"[\d@]", datum):
        letters = ["".join(filter(str.isalnum, value.lower())) for value in (text, datum)]
        return letters[1] in letters[0]
    return set(NAME_WORD.findall(datum.lower())) <= set(NAME_WORD.findall(text.lower()))


def conflicts_of(receipt: Receipt) -> list[dict[str, Any]]:
    """Claims that contradict each other by the replies of the judge."""
    conflicts: list[dict[str, Any]] = []
    for call in (receipt.content["examined"].get("judged") or {}).get("calls", []):
        reply = None if call["leaf"] is None else receipt.texts[call["leaf"]]
        try:
            value = json.loads(reply or "")
        except ValueError:
            continue
        conflicts += value.get("conflicts", []) if isinstance(value, dict) else []
    return conflicts


def prompt_of(receipt: Receipt) -> str:
    """The messages of each call, as the model got them."""
    lines = []
    for number, call in enumerate(receipt.content["calls"], start=1):
        for message in call["messages"]:
            text = receipt.texts[message["leaf"]]
            lines.append(f"--- call {number}, {call['model']}, {message['role']}\n{text}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Verify a receipt.")
    parser.add_argument("receipt", type=Path)
    parser.add_argument("--key", help="SHA-256 of the public key that you expect, hexadecimal")
    parser.add_argument("--prompt", action="store_true", help="print the recomputed messages")
    options = parser.parse_args()
    step = "encoding"
    try:
        receipt = Receipt(options.receipt.read_bytes())
        print("encoding: ok")
        step = "signature"
        print(f"signature: ok, {check_signature(receipt, options.key)}")
        for step, check in (
            ("tree", check_tree),
            ("texts", check_texts),
            ("selection", check_selection),
            ("seal", check_seal),
            ("level", check_level),
        ):
            print(f"{step}: ok, {check(receipt)}")
        print(f"not checked: {NOT_CHECKED}")
    except Broken as error:
        print(f"{step}: FAILS, {error}")
        return 1
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration) as error:
        print(f"{step}: FAILS, this is not the form of a receipt ({type(error).__name__}: {error})")
        return 1
    if options.prompt:
        print(prompt_of(receipt))
    return 0


if __name__ == "__main__":
    sys.exit(main())
