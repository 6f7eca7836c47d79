"""Each format by itself: blocks, headings, pages, and what a document says about itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crp_integrations.errors import IngestError
from crp_integrations.fabric.records import Document
from crp_integrations.loaders import html, jsonl, pdf, text
from crp_integrations.vocabulary import SourceKind
from tests.loaders.pdfs import pdf as make_pdf

MARKDOWN = """# Guide

Intro with *stress*.
Second line.

## Setup

1. Install it
2. Run it

| a | b |
|---|---|
| 1 | 2 |

```python
def f():

    return 1
```

Retention
---------
    indented code

<!-- a comment -->

***

> A quote
> of two lines.

# Last
"""


def read_markdown(source: str, name: str = "a.md") -> Document:
    return text.read_markdown(source.encode(), uri="u", name=name)


def test_markdown_blocks_are_slices_under_their_headings() -> None:
    document = read_markdown(MARKDOWN)
    assert [(block.text, block.heading) for block in document.blocks] == [
        ("# Guide", "Guide"),
        ("Intro with *stress*.\nSecond line.", "Guide"),
        ("## Setup", "Guide > Setup"),
        ("1. Install it\n2. Run it", "Guide > Setup"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "Guide > Setup"),
        ("```python\ndef f():\n\n    return 1\n```", "Guide > Setup"),
        ("Retention\n---------", "Guide > Retention"),
        ("    indented code", "Guide > Retention"),
        ("> A quote\n> of two lines.", "Guide > Retention"),
        ("# Last", "Last"),
    ]
    assert document.title == "Guide"


def test_a_list_of_paragraphs_is_a_block_an_item() -> None:
    items = [f"- item {n} " + "word " * 60 + "end" for n in range(3)]
    document = read_markdown("\n\n".join(items) + "\n  - nested\n")
    assert len(document.blocks) == 3
    assert document.blocks[2].text.endswith("- nested")


LINES = st.lists(
    st.sampled_from(
        [
            *("# H", "## H2", "para", "- item", "  - sub", "1. one", "> q", "```", "| a | b |"),
            *("|---|---|", "", "", "    code", "<b>x</b>", "===", "***", "a\tb", "[x]: http://y"),
        ]
    ),
    max_size=25,
)


@settings(max_examples=80)
@given(LINES)
def test_markdown_blocks_are_verbatim_and_in_order(lines: list[str]) -> None:
    source = "\n".join(lines)
    try:
        document = read_markdown(source)
    except IngestError:
        return
    end = 0
    for block in document.blocks:
        assert source[block.start : block.end] == block.text
        assert block.start >= end
        end = block.end
    lost = source
    for block in document.blocks:
        lost = lost.replace(block.text, "", 1)
    assert "para" not in lost
    assert "item" not in lost


@given(st.text(st.sampled_from("ab \n\t\f"), max_size=60))
def test_paragraphs_are_verbatim_and_nothing_is_lost(source: str) -> None:
    blocks = text.split_paragraphs(source)
    assert all(source[block.start : block.end] == block.text for block in blocks)
    assert "".join("".join(b.text for b in blocks).split()) == "".join(source.split())
    assert all("\n\n" not in block.text for block in blocks)


def test_front_matter_names_kind_title_and_labels() -> None:
    source = "---\nkind: Regulatory\ntitle: The Act\nlabels: [b, a]\nversion: 2\ndate: 2024-03-12\n---\n\n# One\n\nText."
    document = read_markdown(source)
    assert (document.kind, document.title) == (SourceKind.REGULATORY, "The Act")
    assert document.labels == ("a", "b")
    assert document.metadata == {"version": 2, "date": "2024-03-12"}
    assert document.blocks[0].text == "# One"
    assert source[document.blocks[1].start :] == "Text."


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("kind: gossip", "has kind 'gossip', wanted one of regulatory"),
        ("labels: {a: 1}", "labels"),
        ("labels: [1]", "labels"),
        ("kind: web\na: [1", "not YAML in line"),
        ("a: {{ b }}\n  labels: [x]", "not YAML in line"),
        ("{{ a }}\nlabels : [x]", "not YAML"),
        ('{{ a }}\n"labels": [x]', "not YAML"),
        ("labels:secret", "not a list of keys"),
        ("kind: web\ndate: 2024-13-45", "not YAML"),
    ],
)
def test_front_matter_that_cannot_be_used_is_refused(head: str, message: str) -> None:
    with pytest.raises(IngestError, match=message):
        read_markdown(f"---\n{head}\n---\nText.")


@pytest.mark.parametrize(
    "head",
    [
        "{{ page.title }}",
        "title: {{ page.title }}\nlayout: {% block x %}",
        "a: [1",
        "date: 2024-13-45",
        "a: !!bool perhaps",
        "my kind: of town: is this",
    ],
)
def test_a_block_that_is_not_yaml_and_names_no_kind_or_labels_is_text(head: str) -> None:
    source = f"---\n{head}\n---\n\nThe text below."
    document = read_markdown(source)
    assert (document.kind, document.labels, document.metadata) == (None, (), {})
    said = "\n".join(block.text for block in document.blocks)
    assert all(line in said for line in head.split("\n"))
    assert document.blocks[-1].text == "The text below."


def test_front_matter_cannot_grow_without_end() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
        f"{new}: &{new} [{','.join(['*' + old] * 9)}]"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(IngestError, match="more than"):
        text.split_front_matter(f"---\n{bomb}\n---\n", name="x")


def test_a_rule_at_the_top_is_no_front_matter() -> None:
    document = read_markdown("---\nJust a sentence.\n---\n\nText.")
    assert "Just a sentence." in document.blocks[0].text


PAGE = """<!DOCTYPE html><html><head><title> The  Page </title><style>p{color:red}</style></head>
<body><nav><a href="/">Home</a></nav><header><p>Menu</p></header>
<main><h1>Guide<a class="headerlink">¶</a></h1>
<p>First <b>bold</b>,<br>second line &amp; more.</p>
<div>Loose text <span>here</span><!-- no --> and on
  <p>A paragraph</p> tail</div>
<h2>Steps</h2>
<ul><li>One</li><li>Two <em>now</em><ol><li>Deep</li></ol></li></ul>
<table><tr><th>Name</th><th>Value</th></tr><tr><td>a|b</td><td>2</td></tr></table>
<pre>def f():

    return 1</pre>
<p hidden>Secret</p><p style="display: none">Also secret</p><script>var x = 1;</script>
</main><footer>Imprint</footer></body></html>"""


def test_html_is_what_a_reader_sees() -> None:
    document = html.read_html(PAGE.encode(), uri="u", name="a.html")
    assert document.title == "The Page"
    assert [(block.text, block.heading) for block in document.blocks] == [
        ("Guide", "Guide"),
        ("First bold,\nsecond line & more.", "Guide"),
        ("Loose text here and on", "Guide"),
        ("A paragraph", "Guide"),
        ("tail", "Guide"),
        ("Steps", "Guide > Steps"),
        ("- One\n- Two now\n  1. Deep", "Guide > Steps"),
        ("| Name | Value |\n|---|---|\n| a\\|b | 2 |", "Guide > Steps"),
        ("```\ndef f():\n\n    return 1\n```", "Guide > Steps"),
    ]
    whole = "\n\n".join(block.text for block in document.blocks)
    assert all(whole[block.start : block.end] == block.text for block in document.blocks)


def test_html_without_a_main_part_leaves_out_what_is_around() -> None:
    page = b"<body><nav>Menu</nav><p>Text.</p><aside>Ad</aside><footer>Imprint</footer></body>"
    assert [b.text for b in html.read_html(page, uri="u", name="x").blocks] == ["Text."]


def test_html_layout_tables_are_walked_and_depth_does_not_matter() -> None:
    page = "<table><tr><td><h1>T</h1><p>Text.</p></td></tr></table>" + "<div>" * 5000 + "deep"
    document = html.read_html(page.encode(), uri="u", name="x")
    assert [block.text for block in document.blocks] == ["T", "Text.", "deep"]
    nested = "<ul><li>x" * 2000
    assert html.read_html(nested.encode(), uri="u", name="x").blocks[0].text.startswith("- x")


MERGED = """<table><tr><th rowspan=2>Plan</th><th colspan="2">Price</th></tr>
<tr><th>month</th><th>year</th></tr><tr><td rowspan="0">Basic</td><td>5</td><td>50</td></tr>
<tr><td colspan=2>free | none</td></tr><tr><td colspan=9999>x</td></tr></table>"""


def test_html_merged_cells_keep_their_values_in_each_row_and_column() -> None:
    (block,) = html.read_html(MERGED.encode(), uri="u", name="x").blocks
    lines = block.text.split("\n")
    assert lines[:5] == [
        "| Plan | Price | Price |",
        "|---|---|---|",
        "| Plan | month | year |",
        "| Basic | 5 | 50 |",
        "| Basic | free \\| none | free \\| none |",
    ]
    assert lines[5].count("| x ") == 50


def test_html_encoding_is_the_declared_one() -> None:
    page = '<meta charset="iso-8859-1"><p>Größe</p>'.encode("iso-8859-1")
    assert html.read_html(page, uri="u", name="x").blocks[0].text == "Größe"
    with pytest.raises(IngestError, match="is not text"):
        html.read_html("<p>Größe</p>".encode("iso-8859-1"), uri="u", name="x")
    with pytest.raises(IngestError, match="'klingon', which is unknown"):
        html.read_html(b"<meta charset=klingon><p>x</p>", uri="u", name="x")


@pytest.mark.parametrize("page", [b"<html></html>", b"<body><script>x()</script></body>"])
def test_html_without_text_is_refused(page: bytes) -> None:
    with pytest.raises(IngestError, match="contains no text"):
        html.read_html(page, uri="u", name="x")


def test_the_line_of_the_documentation_is_a_document_with_all_that_it_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    line = page.partition("```json\n")[2].partition("\n```")[0]
    assert set(json.loads(line)) == {"text", "id", "title", "kind", "labels", "metadata"}
    (document,) = jsonl.read_jsonl(line.encode(), uri="file:///a.jsonl", name="a.jsonl")
    assert (document.uri, document.title) == ("file:///a.jsonl#7", "Gates")
    assert (document.kind, document.labels) == (SourceKind.OFFICIAL, ("class:public",))
    assert document.metadata == {"page": 3}
    (named,) = jsonl.read_jsonl(
        json.dumps({**json.loads(line), "uri": "gates:1", "source": "x"}).encode(),
        uri="file:///a.jsonl",
        name="a.jsonl",
    )
    assert (named.uri, named.metadata) == ("gates:1", {"page": 3})


def test_jsonl_lines_are_documents() -> None:
    lines = [
        {"text": "One.\n\nTwo.", "id": 7, "title": "T", "kind": "web", "labels": "x"},
        {"content": "Three.", "uri": "https://a.gov/b", "metadata": {"url": "https://a.gov"}},
        {"text": "Four."},
    ]
    data = "\n".join(json.dumps(line) for line in lines).encode() + b"\n\n"
    one, two, three = jsonl.read_jsonl(data, uri="file:///a.jsonl", name="a.jsonl")
    assert (one.uri, one.title, one.kind, one.labels) == (
        "file:///a.jsonl#7",
        "T",
        SourceKind.WEB,
        ("x",),
    )
    assert [block.text for block in one.blocks] == ["One.", "Two."]
    assert (two.uri, two.metadata) == ("https://a.gov/b", {"url": "https://a.gov"})
    # Lines put before it do not make a line another document.
    moved = list(
        jsonl.read_jsonl(b'{"text": "Zero."}\n{"text": "Four."}', uri="file:///a.jsonl", name="x")
    )
    assert moved[1] == three


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"text": null}', "no usable text"),
        ('{"title": "a"}', "no usable text"),
        ('{"text": 5}', "no usable text"),
        ('{"text": "a\\ud800"}', "not Unicode"),
        ('{"text": "a", "kind": "x"}', "has kind 'x'"),
        ('{"text": "a", "metadata": 1}', "metadata"),
        ('{"text": "a", "id": {}}', "unusable id"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str) -> None:
    data = f'{{"text": "fine"}}\n{line}\n'.encode()
    with pytest.raises(IngestError, match=f"a.jsonl line 2.*{message}"):
        list(jsonl.read_jsonl(data, uri="u", name="a.jsonl"))


def test_a_line_with_an_empty_text_is_a_document_without_blocks() -> None:
    lines = [
        '{"text": "", "title": "A"}',
        '{"content": " \\n", "title": "B"}',
        '{"text": "", "id": 7}',
    ]
    documents = list(jsonl.read_jsonl("\n".join(lines).encode(), uri="u", name="a.jsonl"))
    assert [document.uri for document in documents] == ["u#line-1", "u#line-2", "u#7"]
    assert [document.blocks for document in documents] == [(), (), ()]


LONG = "This line is as long as the page is wide, so that the next line follows it"
PAGES = [
    [
        "Annual report 1",
        LONG,
        "and the word infor-",
        "mation is joined, but well-known and well-",
        "known stay.",
        LONG,
        "This page ends in the middle of a",
    ],
    [
        "Annual report 2",
        "sentence that goes on here.",
        LONG + ":",
        "1. first thing",
        "2. second thing",
    ],
    ["Annual report 3", LONG + "."],
    ["Annual report 4", "The (last) page says it."],
]


def test_pdf_paragraphs_are_whole_again_with_their_pages() -> None:
    document = pdf.read_pdf(make_pdf(PAGES, title="Report"), uri="u", name="a.pdf")
    assert document.title == "Report"
    assert [(block.page, block.text) for block in document.blocks] == [
        (1, f"{LONG} and the word information is joined, but well-known and well-known stay."),
        (1, f"{LONG} This page ends in the middle of a sentence that goes on here."),
        (2, f"{LONG}:\n1. first thing\n2. second thing"),
        (3, f"{LONG}."),
        (4, "The (last) page says it."),
    ]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["the pro-", "vision is Jean-", "Paul's"], "the provision is Jean-Paul's"),
        (["a well-known and well-", "known fact"], "a well-known and well-known fact"),
        (["for short-", "and long-term care"], "for short- and long-term care"),
        (["in 2019-", "2021, COVID-", "19 and a -", "b"], "in 2019-2021, COVID-19 and a - b"),
        (["pro\u00ad", "vision"], "provision"),
    ],
)
def test_pdf_words_cut_at_a_lines_end_are_joined(lines: list[str], text: str) -> None:
    document = pdf.read_pdf(make_pdf([lines]), uri="u", name="x.pdf")
    assert [block.text for block in document.blocks] == [text]


def test_pdf_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    good = make_pdf(PAGES)
    for bad in (b"not a pdf at all", good[: len(good) // 3], b"%PDF-1.4\n" + bytes(99)):
        with pytest.raises(IngestError, match=r"a\.pdf"):
            pdf.read_pdf(bad, uri="u", name="a.pdf")
    with pytest.raises(IngestError, match="no text layer"):
        pdf.read_pdf(make_pdf([[]]), uri="u", name="a.pdf")


def test_encrypted_pdf_is_refused_unless_its_password_is_empty() -> None:
    import io

    import pypdf

    for password, refused in (("secret", True), ("", False)):
        writer = pypdf.PdfWriter(clone_from=io.BytesIO(make_pdf(PAGES)))
        writer.encrypt(password, "owner", algorithm="AES-256")
        out = io.BytesIO()
        writer.write(out)
        if refused:
            with pytest.raises(IngestError, match="encrypted"):
                pdf.read_pdf(out.getvalue(), uri="u", name="a.pdf")
        else:
            assert pdf.read_pdf(out.getvalue(), uri="u", name="a.pdf").blocks
