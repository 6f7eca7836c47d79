"""Content as its canonical JSON, part by part."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from crp_integrations.receipt.canonical import dumps
from crp_integrations.receipt.issue import issue
from crp_integrations.receipt.records import Draft, read, write
from crp_integrations.receipt.statement import SUBJECTS
from crp_integrations.receipt.written import Written, part, together
from tests.bench.receipt_packs import pack
from tests.receipt.made import CHAIN, CONTENT, KEY, SALT_KEY, leaves

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="ascii"), max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    parts=st.dictionaries(st.sampled_from("acegik"), VALUES),
    rest=st.dictionaries(st.sampled_from("bdfhjl"), VALUES),
)
def test_parts_are_put_together_as_rfc_8785_writes_the_whole(
    parts: dict[str, Any], rest: dict[str, Any]
) -> None:
    whole = {**rest, **parts}
    try:
        wanted = dumps(whole)
    except ValueError:
        # Half of a surrogate pair.
        return
    made = together({name: part(value) for name, value in parts.items()}, rest)
    assert made.data == wanted
    assert made == whole and len(made) == len(whole) and list(made) == sorted(whole)


@pytest.mark.parametrize("odd", [0.5, 1e16, 2**53, {"a": [1, -0.25]}, b"told"], ids=repr)
def test_what_is_not_signed_is_refused_in_a_part_and_beside_it(odd: Any) -> None:
    with pytest.raises(ValueError, match=r"number|JSON"):
        part({"score": odd})
    with pytest.raises(ValueError, match=r"number|JSON"):
        together({"a": part([1])}, {"b": odd})


def test_a_receipt_of_written_content_is_one_of_its_objects() -> None:
    objects = issue(Draft(CONTENT, leaves()), CHAIN, KEY, SALT_KEY)
    written = issue(Draft(Written(dumps(CONTENT)), leaves()), CHAIN, KEY, SALT_KEY)
    assert write(written) == write(objects)
    assert written == objects == read(write(written))
    assert isinstance(written.content, dict) and written.content == objects.content


@pytest.mark.parametrize("number", range(12))
def test_the_payload_is_what_rfc_8785_makes_of_it(number: int) -> None:
    receipt = pack(number)
    told = receipt.statement
    wanted = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicate": {
            "chain": told.chain.to_json(),
            "content": receipt.content,
            "texts": {
                "leaves": [
                    {**one, "of": [*one["of"]], "parts": [*one["parts"]]} if "of" in one else one
                    for one in (leaf.to_json() for leaf in told.leaves)
                ],
                "root": told.root.hex(),
            },
        },
        "predicateType": "https://crp-integrations.dev/receipt/v1",
        "subject": [
            {"digest": {"sha256": told.subjects[name].hex()}, "name": name} for name in SUBJECTS
        ],
    }
    assert receipt.signed.payload == rfc8785.dumps(wanted)
    assert receipt == read(write(receipt))
