"""The badge, in a real browser: green for a whole receipt, never for a changed one."""

from __future__ import annotations

import base64
import json
import random

import pytest

from crp_integrations.receipt.page import page
from crp_integrations.receipt.verify import verify
from tests.receipt.page.browser import before_load
from tests.receipt.page.conftest import Open
from tests.receipt.page.samples import KEY, handbook

WHOLE = handbook().receipt()
PARTED = handbook().receipt(redacted=(1, 5), erased=(2,))


def test_opens_from_disk_without_a_request_and_is_green(show: Open) -> None:
    opened = show(WHOLE)
    assert opened.state == "not recomputed", opened.place
    assert opened.console() == []
    asked = opened.requests()
    assert len(asked) == 1
    assert asked[0].startswith("file://")
    assert asked[0].endswith("/page.html")


def test_names_the_key_and_no_person(show: Open) -> None:
    opened = show(WHOLE)
    assert KEY.keyid[:4] + " " + KEY.keyid[4:8] in opened.place
    assert "Whose key that is, this page cannot know" in opened.place


def test_texts_left_out_and_erased_leave_it_green_and_are_told(show: Open) -> None:
    opened = show(PARTED)
    assert opened.state == "not recomputed", opened.place
    assert "Its text was left out of this copy" in opened.text
    assert "Its text was erased with its source" in opened.text
    assert "An employer must notify" not in opened.text


def _places(data: bytes) -> dict[str, int]:
    """A byte of each part of the file."""
    found = json.loads(data)
    text = found["texts"][1]["text"].encode()
    return {
        "first": 0,
        "payload": data.index(b'"payload":"') + 3000,
        "payload type": data.index(b"vnd.in-toto"),
        "key id": data.index(b'"keyid":"') + 12,
        "signature": data.index(b'"sig":"') + 20,
        "last of the signature": data.index(b'"', data.index(b'"sig":"') + 7) - 3,
        "key": data.index(b'"key":"') + 10,
        "schema": data.index(b"receipt/1") + 8,
        "salt": data.index(b'"salt":"') + 15,
        "text of a fact": data.index(text) + 20,
        "answer": data.index(b"eight months"),
        "line end": len(data) - 1,
    }


@pytest.mark.parametrize("part", sorted(_places(WHOLE)))
@pytest.mark.parametrize("bit", [0x01, 0x20])
def test_one_changed_byte_of_the_receipt_is_red(show: Open, part: str, bit: int) -> None:
    changed = bytearray(WHOLE)
    changed[_places(WHOLE)[part]] ^= bit
    opened = show(bytes(changed))
    assert opened.state == "broken"
    assert opened.place
    assert opened.console() == []


def test_any_changed_byte_of_the_receipt_is_red(show: Open) -> None:
    chance = random.Random(8)
    for _ in range(15):
        changed = bytearray(PARTED)
        at = chance.randrange(len(changed))
        changed[at] ^= 1 << chance.randrange(8)
        opened = show(bytes(changed))
        assert opened.state == "broken", f"byte {at}"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data + b"\n",
        lambda data: data[:-1],
        lambda data: data.replace(b'{"envelope"', b'{ "envelope"', 1),
        lambda data: data.replace(b'"schema"', b'"schema":"receipt/1","schema"', 1),
        lambda data: data.replace(b"Transport", b"\\u0054ransport", 1),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: b"",
    ],
    ids=["more", "less", "space", "twice", "escape", "mark", "nothing"],
)
def test_another_writing_of_the_same_receipt_is_red(show: Open, spoil: object) -> None:
    changed = spoil(WHOLE)  # type: ignore[operator]
    assert changed != WHOLE
    assert show(changed).state == "broken"


@pytest.mark.parametrize("half", [b"\\ud800", b"\\udfff", b"\xed\xa0\x80"])
def test_half_of_a_surrogate_pair_is_not_taken_for_another_sign(show: Open, half: bytes) -> None:
    sample = handbook()
    sample.facts = (f"{sample.facts[0]} \ufffd", *sample.facts[1:])
    data = sample.receipt()
    assert show(data).state == "not recomputed"
    # Encoders write U+FFFD for it, so the hash of the text would be the same.
    changed = data.replace("\ufffd".encode(), half)
    assert changed != data
    assert not verify(changed).ok
    assert show(changed).state == "broken"


def test_another_key_is_red(show: Open) -> None:
    other = json.loads(WHOLE)
    other["key"] = base64.b64encode(bytes(32)).decode()
    text = json.dumps(other, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    opened = show(text.encode())
    assert opened.state == "broken"
    assert "key" in opened.place


def test_a_changed_byte_of_the_page_never_shows_something_else_in_green(show: Open) -> None:
    text = page(WHOLE)
    frame = text.index('type="text/plain">')
    script = text.index('"use strict"')
    chance = random.Random(3)
    before = show(WHOLE).script(
        "return [...document.querySelectorAll('h1, #content')].map(e => e.textContent)"
    )
    places = [chance.randrange(frame) for _ in range(12)]
    places += [chance.randrange(script, len(text)) for _ in range(10)]
    places += [
        text.index(word) + 2 for word in ("<main>", "</style>", "sha256-", "<script>", "charset")
    ]
    for at in places:
        sign = chr(ord(text[at]) ^ 1)
        opened = show(text[:at] + sign + text[at + 1 :])
        shown = opened.script(
            "return [...document.querySelectorAll('h1, #content')].map(e => e.textContent)"
        )
        assert opened.state != "not recomputed" or shown == before, f"{text[at - 20 : at + 20]!r}"


def test_a_changed_script_leaves_the_word_that_nothing_was_checked(show: Open) -> None:
    opened = show(
        page(WHOLE).replace('["yes", "✓", "Receipt holds"]', '["yes", "✓", "receipt holds"]')
    )
    assert opened.state == ""
    assert "Nothing was checked" in opened.text


@pytest.mark.parametrize(
    "change",
    [
        "document.querySelector('.wrong').firstChild.data = 'six months'",
        "document.querySelector('.claim.contradicted').className = 'claim supported'",
        "document.querySelector('.fact blockquote').append('!')",
        "document.querySelector('h1').textContent = 'Another question'",
        "document.querySelector('.tiles b').textContent = 'LOW'",
        "document.getElementById('dropped').remove()",
        "document.getElementById('content').remove()",
    ],
)
def test_what_is_shown_turns_it_red_when_it_is_changed(show: Open, change: str) -> None:
    opened = show(WHOLE)
    assert opened.state == "not recomputed"
    opened.script(change)
    if "content').remove" in change:
        # Nothing within it changed; the next check sees that it is gone.
        opened.script("document.querySelector('button').click()")
    opened.settle()
    assert opened.state == "broken"
    assert "What is shown" in opened.place


NO_CRYPTO = "Object.defineProperty(Crypto.prototype, 'subtle', { get: () => undefined });"
NO_ED25519 = """
const importKey = SubtleCrypto.prototype.importKey;
SubtleCrypto.prototype.importKey = function (format, key, algorithm, ...rest) {
  if ((algorithm.name || algorithm) === "Ed25519") {
    return Promise.reject(new DOMException("Unrecognized name.", "NotSupportedError"));
  }
  return importKey.call(this, format, key, algorithm, ...rest);
};
"""
SAYS_YES = "SubtleCrypto.prototype.verify = async () => true;"
SAYS_NO = "SubtleCrypto.prototype.verify = async () => false;"
ONE_HASH = "SubtleCrypto.prototype.digest = async () => new ArrayBuffer(32);"


@pytest.mark.parametrize(
    "lacking",
    [NO_CRYPTO, NO_ED25519, SAYS_YES, SAYS_NO, ONE_HASH],
    ids=["crypto", "ed25519", "yes", "no", "hash"],
)
def test_a_browser_without_the_algorithm_says_so_and_is_never_green(
    show: Open, driver: object, lacking: str
) -> None:
    with before_load(driver, lacking):
        opened = show(WHOLE)
    assert opened.state == "cannot"
    assert "Cannot check here" in opened.script(
        "return document.getElementById('badge').textContent"
    )
    assert "crp receipt verify" in opened.place
    assert opened.console() == []


def test_without_the_algorithm_what_can_be_checked_still_is(show: Open, driver: object) -> None:
    changed = WHOLE.replace(b"eight months", b"seven months")
    with before_load(driver, NO_ED25519):
        assert show(changed).state == "broken"
    with before_load(driver, NO_CRYPTO):
        assert show(WHOLE + b"\n").state == "broken"
