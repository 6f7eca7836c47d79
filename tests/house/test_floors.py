"""Imports go down only, and below relay the world is not touched."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.imports import OWN, Import, files, imports, room_of_file

# From the roof down; rooms of one floor are strangers.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("langchain", "llama_index", "litellm", "gateway", "testing"),
    # Above relay, since they examine answers and ask judges.
    ("adapters", "evaluation"),
    ("relay",),
    ("engines", "stores", "loaders", "observability"),
    ("headers", "receipt"),
    ("session", "governance"),
    ("policy",),
    ("dpe",),
    ("envelope",),
    ("fabric",),
    ("guard",),
    ("audit", "language", "weights"),
    ("ports",),
    ("messages",),
    ("vectors", "vocabulary", "errors", "validation", "seals", "scores", "records", "markup"),
)
LEVEL = {room: len(FLOORS) - number for number, floor in enumerate(FLOORS) for room in floor}
RELAY = LEVEL["relay"]
LIBRARY_FLOOR = frozenset({"engines", "stores", "loaders", "observability"})
# The lowest floor is one room in several files: its files may use one another.
GROUND = LEVEL["records"]

# Which files may import a framework or a heavy library, by the start of their path.
HOMES: dict[str, tuple[str, ...]] = {
    "langchain": ("langchain/",),
    "langchain_core": ("langchain/",),
    "langgraph": ("langchain/",),
    "llama_index": ("llama_index/",),
    "litellm": ("litellm/", "engines/litellm"),
    "torch": ("engines/verifiers/",),
    "safetensors": ("engines/verifiers/",),
    "onnxruntime": ("engines/",),
    "tokenizers": ("engines/",),
    "transformers": ("engines/",),
    "tiktoken": ("engines/",),
    "sentencepiece": ("engines/",),
    "mistral_common": ("engines/",),
    "hnswlib": ("engines/",),
    "graspologic_native": ("engines/",),
    "networkx": ("engines/",),
    "igraph": ("engines/",),
    "leidenalg": ("engines/",),
    "sqlite3": ("stores/", "testing/"),
    "obstore": ("engines/",),
    # Peers of the benchmarks, which are outside the package.
    "bm25s": (),
    "opentelemetry": ("observability/",),
    "prometheus_client": ("observability/",),
    "pypdf": ("loaders/",),
    "selectolax": ("loaders/",),
    "markdown_it": ("loaders/",),
    "yaml": ("loaders/",),
    "rich": ("cli/",),
    "typer": ("cli/",),
    "starlette": ("gateway/",),
    "uvicorn": ("gateway/",),
    "h11": ("gateway/",),
    "pytest": ("testing/",),
    "hypothesis": ("testing/",),
}
# What touches clock, chance, network, processes or disk, so not below the library floor.
WORLD = frozenset(
    {
        "asyncio", "glob", "http", "httpx", "importlib.metadata", "multiprocessing", "os",
        "random", "requests", "secrets", "shutil", "socket", "subprocess", "tempfile",
        "threading", "time", "urllib", "urllib3",
    }
)  # fmt: skip
# A parser of addresses opens none; a lock guards a memo.
HARMLESS = frozenset({"urllib.parse", "threading"})
WORLD_CALLS = frozenset(
    {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "uuid1", "uuid4",
     "uuid.uuid1", "uuid.uuid4", "np.random", "numpy.random", "open"}
)  # fmt: skip
# Weights are files of the package itself, read through importlib.resources.
READS_OWN_FILES = ("weights/",)


def _own() -> list[Import]:
    return [found for found in imports() if found.top == OWN and found.room]


def test_every_room_has_a_floor() -> None:
    rooms = {room_of_file(file) for file in files()} - {""}
    assert sorted(rooms - set(LEVEL)) == []


def test_imports_go_down_only() -> None:
    wrong = []
    for found in _own():
        here, there = room_of_file(found.file), found.room
        if here in ("", there):
            continue
        if LEVEL[here] == GROUND == LEVEL.get(there):
            continue
        if LEVEL.get(there, RELAY) >= LEVEL[here]:
            wrong.append(str(found))
    assert wrong == []


def test_the_front_door_opens_relay_and_the_records_only() -> None:
    above = [str(f) for f in _own() if f.file == "__init__.py" and LEVEL[f.room] > RELAY]
    assert above == []
    at_once = [f for f in imports() if f.file == "__init__.py" and f.at_import]
    heavy = [str(f) for f in at_once if f.top in HOMES or f.top == "numpy"]
    assert heavy == []


def test_only_relays_build_and_its_defaults_choose_from_the_library_floor() -> None:
    wrong = [
        str(found)
        for found in _own()
        if found.room in LIBRARY_FLOOR
        and room_of_file(found.file) == "relay"
        and found.file not in ("relay/build.py", "relay/defaults.py")
    ]
    assert wrong == []


@pytest.mark.parametrize("library", sorted(HOMES))
def test_a_library_is_imported_in_its_home_only(library: str) -> None:
    homes = HOMES[library]
    wrong = [str(f) for f in imports() if f.top == library and not f.file.startswith(homes)]
    assert wrong == []


def _pure(file: str) -> bool:
    room = room_of_file(file)
    return room != "" and LEVEL[room] < LEVEL["stores"] and not file.startswith(READS_OWN_FILES)


def test_below_relay_nothing_of_the_world_is_imported() -> None:
    wrong = [
        str(found)
        for found in imports()
        if _pure(found.file)
        and found.name not in HARMLESS
        and any(found.name == name or found.name.startswith(name + ".") for name in WORLD)
    ]
    assert wrong == []


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _world_calls(file: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _dotted(node.func)
            if any(name == call or name.startswith(call + ".") for call in WORLD_CALLS):
                yield f"{file}:{node.lineno} calls {name}"


def test_below_relay_no_clock_no_chance_no_file() -> None:
    wrong = [
        call for file, tree in files().items() if _pure(file) for call in _world_calls(file, tree)
    ]
    assert wrong == []


def test_only_the_drivers_of_relay_await() -> None:
    awaiting = {
        file
        for file, tree in files().items()
        if room_of_file(file) == "relay"
        and any(isinstance(node, ast.Await | ast.AsyncFor) for node in ast.walk(tree))
    }
    # relay.py and storeless_functions.py hand a coroutine on; drive.py plays it. The judge is
    # no step of a turn but calls a model.
    passing_on = {"relay/relay.py", "relay/storeless_functions.py", "relay/judged_answer.py"}
    allowed = {"relay/drive.py", "relay/judge.py", "relay/actions.py", *passing_on}
    assert awaiting <= allowed


def test_only_the_roof_prints() -> None:
    printing = {
        f"{file}:{node.lineno}"
        for file, tree in files().items()
        if room_of_file(file) != "cli"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _dotted(node.func) == "print"
    }
    assert printing == set()


def test_every_room_has_a_door_sign() -> None:
    signs = {file: ast.get_docstring(tree) for file, tree in files().items()}
    silent = [file for file, sign in signs.items() if file.count("/") == 1 and not sign]
    assert [file for file in silent if file.endswith("__init__.py")] == []
