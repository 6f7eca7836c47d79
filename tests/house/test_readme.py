"""The README is true: its code runs, its commands exist, the check runs its test command."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.commands import Here, script
from tests.house.pages import Block, blocks, page_script, words
from tests.judges import by_words, changed, judge_double, judging
from tests.requirements.rows import ROOT

README = ROOT / "README.md"
INGEST = ROOT / "docs" / "how-to" / "ingest.md"
INSTALL = ROOT / "docs" / "reference" / "install.md"
GALLERY = ROOT / "docs" / "gallery.md"
CHECK = ROOT / ".ci" / "run"
CODE = [block for block in blocks(README) if block.language == "python"]
COMMANDS = [block for block in blocks(README) if block.language == "bash"]


def _marked(name: str) -> Block:
    (block,) = [block for block in COMMANDS if block.mark == f"command: {name}"]
    return block


# What a reader of the README has already, and calls by these names.
YOURS = """
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from llama_index.core import Document as Page
from llama_index.core import MockEmbedding, Settings, VectorStoreIndex
from llama_index.core.llms import MockLLM

FACT = "A refund is granted within 30 days of purchase, with the receipt."
question = "How long can I ask for a refund?"


class YourRetriever(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(FACT)]


your_retriever = YourRetriever()
your_chain = lambda found: found | RunnableLambda(str) | FakeListChatModel(responses=[FACT.replace("30", "60")])
Settings.llm, Settings.embed_model = MockLLM(), MockEmbedding(embed_dim=8)
your_index = VectorStoreIndex.from_documents([Page(text=FACT)])
your_models = [{"model_name": "main", "litellm_params": {"model": "extractive/best"}}]
Path("notes").mkdir()
Path("notes/policy.md").write_text(FACT)
"""
# What the judge of the first example says.
REFUND = changed(
    "you get the rest of the month back",
    "The fee of a month that has begun is not refunded",
    "2",
    "NEGATION",
)
PRICE = {"status": "SUPPORTED", "quotes": [{"in": "1", "text": "costs 4.20 euros a month"}]}
# What the README says of where the reports are.
REPORTS = """
print("langchain", chain.invoke(question).response_metadata["crp"]["risk_level"])
print("llama_index", response_of_index.metadata["crp"]["risk_level"])
print("litellm", response.crp["risk_level"], response.choices[0].message.content)
"""


def _page(path: Path, folder: Path) -> Path:
    """A script of a page's code."""
    code = [page_script(path)]
    if path == README:
        code = [block.body for block in CODE]
        # Two of its blocks name their result `response`.
        code = [*code[:2], YOURS, *code[2:4], "response_of_index = response", *code[4:], REPORTS]
    made = folder / "page.py"
    made.write_text("\n\n".join(code), encoding="utf-8")
    return made


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith("_KEY")]:
        monkeypatch.delenv(name)


def test_the_code_of_the_readme_runs_in_order(tmp_path: Path) -> None:
    # In an interpreter of its own, as whoever tries it would; the judge is a server here.
    said = by_words({"If you cancel": REFUND, "You pay": PRICE})
    with judge_double(answers=judging(said)) as server:
        judge = {"OPENAI_API_BASE": server.url, "OPENAI_API_KEY": "sk-judge"}
        done = script(_page(README, tmp_path), cwd=tmp_path, **judge)
    assert done.returncode == 0, done.stderr[-3000:]
    # The pictures of checked answers are what the code above them prints.
    shown = [block.body for block in blocks(README) if block.language == "text"]
    assert len(shown) == 2
    assert done.stdout.startswith("".join(shown))
    # A chain whose model says 60 days is caught; the one that quotes is not.
    assert "langchain HIGH" in done.stdout
    assert "llama_index " in done.stdout
    assert re.search(r"litellm LOW .*30 days", done.stdout, re.DOTALL)


def test_the_gallery_shows_what_its_code_prints(tmp_path: Path) -> None:
    done = script(_page(GALLERY, tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    shown = [block.body for block in blocks(GALLERY) if block.language == "text"]
    assert len(shown) == 5
    assert done.stdout == "".join(shown)


def test_the_readme_has_at_most_700_words_beside_code() -> None:
    assert words(README) <= 700


def test_the_readmes_accuracy_is_that_of_the_page() -> None:
    page = " ".join((ROOT / "docs/evidence/accuracy.md").read_text(encoding="utf-8").split())
    text = README.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| (no judge|Claude|a capable)", line)]
    assert len(rows) == 2
    for row in rows:
        for cell in re.findall(r"[\d,]+ of [\d,]+(?= \|)", row):
            # The other three of a row follow from what is flagged and what is LOW.
            assert cell in page or cell.startswith("0 of "), row


def test_the_readmes_selection_is_that_of_the_page() -> None:
    text = README.read_text(encoding="utf-8")
    head, _, row = text[text.index("| a store |") :].splitlines()[:3]
    shown = dict(zip(head.strip("| ").split(" | "), row.strip("| ").split(" | "), strict=True))
    names = {
        "a store": "**crp (default)**", "`CRPRetriever.wrap`": "`CRPRetriever.wrap` over a dense retriever", "rank fusion": "rank fusion of the two, k = 60",
        "BM25": "stemmed BM25 (bm25s)",
    }  # fmt: skip
    table = (ROOT / "docs" / "evidence" / "selection.md").read_text(encoding="utf-8")
    for name, value in shown.items():
        (line,) = [
            x
            for x in table.splitlines()
            if x.startswith(f"| {names.get(name, name)} |") and x.count("|") == 9
        ]
        assert line.split("|")[7].strip() == value, name


def test_the_readme_shows_code_for_python_and_each_adapter() -> None:
    text = "\n".join(block.body for block in CODE)
    for name in ("Relay.open", "examine(", "CRPRetriever", "CRPNodePostprocessor"):
        assert name in text
    assert "CRPRouter" in text


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: block.mark or "commands")
def test_a_command_block_can_be_parsed(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.body, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_the_two_commands_are_one_line_each() -> None:
    assert len(_marked("quickstart").body.strip().splitlines()) == 1
    assert len(_marked("test").body.strip().splitlines()) == 1


@pytest.mark.requirement("CARD-14")
def test_the_test_command_installs_the_test_extra_and_runs_the_whole_suite() -> None:
    install, run = (shlex.split(part) for part in _marked("test").body.split("&&"))
    # Nothing is compiled beforehand: half of the time goes into modules that no test imports.
    known = ["-c", ".ci/known.txt"]
    assert install == [".venv/bin/pip", "install", "--no-compile", "-e", ".[test]", *known]
    assert run[:3] == [".venv/bin/python", "-m", "pytest"]
    # No path, no selection: what runs is `testpaths`, which is every test there is, in two processes.
    assert run[3:] == ["-q", "-n", "2", "--dist", "worksteal"]
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert options["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]
    assert _marked("quickstart").body.startswith("python3 -m venv .venv ")


@pytest.mark.requirement("CARD-14")
def test_the_check_takes_both_commands_from_the_readme() -> None:
    text = CHECK.read_text(encoding="utf-8")
    assert os.access(CHECK, os.X_OK)
    assert subprocess.run(["bash", "-n", str(CHECK)]).returncode == 0
    code = text.split("<<'EXTRACT'\n")[1].split("\nEXTRACT\n")[0]
    for name in ("quickstart", "test"):
        assert f"readme_command {name}" in text
        done = subprocess.run(
            [sys.executable, "-", name], input=code, cwd=ROOT, capture_output=True, text=True
        )
        assert done.stdout == _marked(name).body
    # The commands stand in the README alone.
    assert "-e '.[test]'" not in text


def _crp_lines() -> list[list[str]]:
    return [
        shlex.split(line)
        for block in [*COMMANDS, *[b for b in blocks(INGEST) if b.language == "bash"]]
        for line in block.body.splitlines()
        if line.startswith("crp ")
    ]


def _command(words: list[str]) -> list[str]:
    """The command's name, or the names of its group and itself."""
    return words[1:3] if words[1] in ("fabric", "receipt", "audit", "eval") else words[1:2]


@pytest.mark.parametrize("words", _crp_lines(), ids=lambda words: " ".join(_command(words)))
def test_a_crp_command_and_its_options_exist(here: Here, words: list[str]) -> None:
    run = here(*_command(words), "--help", cwd=ROOT, COLUMNS="200", NO_COLOR="1")
    assert run.returncode == 0, run.stderr
    options = set(re.findall(r"--[\w-]+", run.stdout))
    assert {word for word in words[2:] if word.startswith("--")} <= options


def test_the_extras_of_the_page_are_those_that_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = INSTALL.read_text(encoding="utf-8").split("## Extras")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE))
    assert named == set(project["optional-dependencies"])
    rows = dict(re.findall(r"^\| `([\w-]+)` \|(.*)$", table, re.MULTILINE))
    assert "compiler" in rows["hnsw"]
    assert "GPL" in rows["leidenalg"]


def test_every_requirement_has_a_floor_and_a_ceiling() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    for line in [*project["dependencies"], *extras]:
        if not line.startswith("crp-integrations["):
            assert re.fullmatch(r"[\w.-]+(\[[\w,]+\])?>=[\d.]+,<[\d.]+", line), line


def test_the_default_install_has_no_torch_no_gpl_and_no_compiler() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    every = [re.fullmatch(r"crp-integrations\[([\w,-]+)\]", line) for line in extras["all"]]
    names = [name for line in every if line for name in line[1].split(",")]
    assert len(names) == 12
    plain = [*project["dependencies"]]
    for name in (*names, "test"):
        plain += extras[name]
    names = {re.split(r"[>\[]", line)[0] for line in plain}
    assert not names & {"torch", "hnswlib", "leidenalg", "igraph"}


def test_the_known_set_is_dated_holds_every_requirement_and_no_torch() -> None:
    known = (ROOT / ".ci" / "known.txt").read_text(encoding="utf-8")
    assert re.match(r"# Resolved on \d{4}-\d\d-\d\d by \.ci/renew ", known)
    pinned = set(re.findall(r"^([a-z0-9-]+)==", known, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    names = {re.split(r"[\[><=]", line)[0].lower() for line in wanted} - {"crp-integrations"}
    assert names <= pinned, names - pinned
    assert "torch" not in pinned


def test_every_path_that_the_check_names_is_there() -> None:
    for command in sorted(one for one in (ROOT / ".ci").iterdir() if one.is_file()):
        text = command.read_text(encoding="utf-8")
        for path in re.findall(
            r"\b(?:tests|crp_integrations|examples)/[\w/]*[\w](?:\.py)?\b", text
        ):
            assert (ROOT / path).exists() or list(ROOT.glob(path + "*")), f"{command.name}: {path}"
