"""`crp bench …`: measurements of this machine, beside the libraries that are installed."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from crp_integrations.bench.fabric.table import table
from crp_integrations.bench.measure import in_one_thread
from crp_integrations.bench.relay.table import table as relay_table
from crp_integrations.cli.show import terminal
from crp_integrations.errors import RequestError

DISTORTIONS = "crp_integrations.bench.distortions"
FABRIC = "crp_integrations.bench.fabric"
PACKING = "crp_integrations.bench.packing"
INJECTION = "crp_integrations.bench.injection"
PII = "crp_integrations.bench.pii"
RELAY = "crp_integrations.bench.relay"
SELECTION = "crp_integrations.bench.selection"
VERIFIER = "crp_integrations.bench.verifier"
SENTENCES = "crp_integrations.bench.sentences"
WINDOWS = "crp_integrations.bench.windows"
FEWEST = 200

app = typer.Typer(help="Measure this machine.", no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[Path | None, typer.Option("--json", help="File for the report.")]


@app.command("distortions")
def distortions(
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of sets; without, this Python's own text.")
    ] = None,
    json_path: Json = None,
    part: Annotated[str, typer.Option("--part", help="tune or held, by document.")] = "tune",
    kinds: Annotated[
        str, typer.Option("--kinds", help="Names with commas between; all without.")
    ] = "",
    most: Annotated[
        int | None, typer.Option("--most", min=1, help="At most so many cases of a kind.")
    ] = None,
    cases: Annotated[
        Path | None, typer.Option("--cases", help="File for the cases of the part tune.")
    ] = None,
    lexical: Annotated[bool, typer.Option("--lexical", help="Without the embedder.")] = False,
) -> None:
    """Changed sentences that the provenance engine sees, and its false alarms over clean ones."""
    if part not in ("tune", "held"):
        raise RequestError(f"--part is {part!r:.40}, wanted tune or held")
    given = ["--part", part, "--kinds", kinds]
    given += ["--data", str(data)] if data else []
    given += ["--json", str(json_path)] if json_path else []
    given += ["--most", str(most)] if most else []
    given += ["--cases", str(cases)] if cases else []
    given += ["--lexical"] if lexical else []
    status = in_one_thread(DISTORTIONS, given)
    if status != 0:
        raise typer.Exit(status)


@app.command("fabric")
def fabric(
    facts: Annotated[
        str, typer.Option("--facts", help="Numbers of facts, with commas between.")
    ] = "1000,10000,100000",
    json_path: Json = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder that keeps vectors between runs.")
    ] = None,
    embedder: Annotated[
        str, typer.Option("--embedder", help="minilm, or hash for trying this out.")
    ] = "minilm",
    store: Annotated[
        str, typer.Option("--store", help="postgresql:// address: measure that beside plain SQL.")
    ] = "",
) -> None:
    """Search, filter, communities, ingestion and opening beside other stores, on real text."""
    _checked(facts, embedder)
    if store:
        given = ["--store", store, "--facts", facts.rpartition(",")[2], "--embedder", embedder]
        given += [f"{o}={p}" for o, p in (("--cache", cache), ("--json", json_path)) if p]
        raise typer.Exit(in_one_thread(f"{FABRIC}.postgres", given))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        given = ["--facts", facts, "--embedder", embedder, "--quiet", "--json", str(path)]
        given += ["--cache", str(cache)] if cache else []
        # A process of its own: BLAS is told to use one thread before numpy is loaded.
        status = in_one_thread(FABRIC, given)
        if status != 0:
            raise typer.Exit(status)
        text = path.read_text(encoding="utf-8")
    if json_path:
        json_path.write_text(text, encoding="utf-8")
    _show(json.loads(text))


@app.command("hash")
def hash_(
    facts: Annotated[int, typer.Option("--facts", min=1, help="Number of facts.")] = 1_000_000,
    json_path: Json = None,
) -> None:
    """The state hash after one change, incrementally and by the formula."""
    from crp_integrations.bench.hash import measure

    found = asdict(measure(facts))
    if json_path:
        json_path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    drawn = Table(title="State hash, CPU milliseconds", title_justify="left", show_header=False)
    for name, value in found.items():
        drawn.add_row(name, str(value))
    terminal().print(drawn)


@app.command("selection")
def selection(
    data: Annotated[Path, typer.Option("--data", help="A set's folder, or one that holds sets.")],
    json_path: Json = None,
    systems: Annotated[
        str, typer.Option("--systems", help="Names with commas between; all without.")
    ] = "",
    sets: Annotated[
        str, typer.Option("--sets", help="Names with commas between; all without.")
    ] = "",
    budgets: Annotated[
        str, typer.Option("--budgets", help="Tokens with commas between.")
    ] = "256,512,1024,2048,4096",
    queries: Annotated[
        int | None, typer.Option("--queries", min=1, help="At most so many questions of each set.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder that keeps vectors between runs.")
    ] = None,
    ablate: Annotated[
        bool, typer.Option("--ablate", help="The default, and it with parts switched off.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as Markdown.")
    ] = False,
) -> None:
    """Evidence in the context beside other retrievers, on data sets of documents and questions."""
    given = ["--data", str(data), "--systems", systems, "--sets", sets, "--budgets", budgets]
    given += ["--json", str(json_path)] if json_path else []
    given += ["--queries", str(queries)] if queries else []
    given += ["--cache", str(cache)] if cache else []
    given += ["--ablate"] if ablate else []
    given += ["--markdown"] if markdown else []
    # A process of its own, as above; what it says and refuses goes straight to the terminal.
    status = in_one_thread(SELECTION, given)
    if status != 0:
        raise typer.Exit(status)


@app.command("verifier")
def verifier(
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="Labelled answers; may be repeated.")
    ] = None,
    more: Annotated[list[Path] | None, typer.Argument(help="Further files.")] = None,
    json_path: Json = None,
    folds: Annotated[
        int | None, typer.Option("--folds", min=2, help="Refit, and score what was left out.")
    ] = None,
    kept: Annotated[
        Path | None, typer.Option("--kept", help="Folder that keeps the fitted folds.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder that keeps measures between runs.")
    ] = None,
    systems: Annotated[
        str, typer.Option("--systems", help="Names with commas between.")
    ] = "crp,features,alignment,literal",
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help="At most so many cases of each file.")
    ] = None,
    speed: Annotated[bool, typer.Option("--speed", help="The cost over lengths instead.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables as Markdown.")] = False,
) -> None:
    """The verifier beside the literal rule and peers, on labelled answers and pairs."""
    given = ["--systems", systems]
    given += ["--data", *map(str, [*(data or []), *(more or [])])] if data or more else []
    given += ["--json", str(json_path)] if json_path else []
    given += ["--folds", str(folds)] if folds else []
    given += ["--kept", str(kept)] if kept else []
    given += ["--cache", str(cache)] if cache else []
    given += ["--sample", str(sample)] if sample else []
    given += ["--speed"] if speed else []
    given += ["--markdown"] if markdown else []
    status = in_one_thread(VERIFIER, given)
    if status != 0:
        raise typer.Exit(status)


@app.command("questions")
def questions(
    data: Annotated[Path, typer.Option("--data", help="Questions with steps, gzip JSON lines.")],
    single: Annotated[
        Path | None, typer.Option("--single", help="Sets whose share of split queries is told.")
    ] = None,
    json_path: Json = None,
) -> None:
    """Decomposition of questions by rules beside the whole question."""
    from crp_integrations.bench.questions import METRICS, run

    found = run(data, single)
    if json_path:
        json_path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    drawn = Table(title="Sub-queries, means over questions", title_justify="left")
    for name in ("half", "way", *METRICS, "split"):
        drawn.add_column(name, overflow="fold")
    for half in ("develop", "report"):
        for way in ("whole", "rules"):
            row = found[half][way]
            drawn.add_row(half, way, *(f"{row[name]:.3f}" for name in (*METRICS, "split")))
    for name, row in found.get("single", {}).items():
        drawn.add_row(name, "rules", *[""] * len(METRICS), f"{row['split']:.3f}")
    terminal().print(drawn)


@app.command("packing")
def packing(
    candidates: Annotated[
        str, typer.Option("--candidates", help="Numbers of candidates, with commas between.")
    ] = "500,5000",
    facts: Annotated[
        int, typer.Option("--facts", min=0, help="Facts of the store; 0 leaves it out.")
    ] = 100_000,
    budget: Annotated[int, typer.Option("--budget", min=1, help="Tokens to fill.")] = 2_048,
    exact: Annotated[
        Path | None, typer.Option("--float", help="Folder of the float32 MiniLM.")
    ] = None,
    json_path: Json = None,
) -> None:
    """Rank, pack and order beside LangChain, LlamaIndex and the specification's loops."""
    if not all(size.strip().isdecimal() and int(size) >= 24 for size in candidates.split(",")):
        seen = f"{candidates!r:.40}"
        raise RequestError(f"--candidates is {seen}, wanted numbers from 24 with commas")
    given = ["--candidates", candidates, "--facts", str(facts), "--budget", str(budget)]
    given += ["--float", str(exact)] if exact else []
    given += ["--json", str(json_path)] if json_path else []
    status = in_one_thread(PACKING, given)
    if status != 0:
        raise typer.Exit(status)


@app.command("injection")
def injection(
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of sets with documents.jsonl.gz.")
    ] = None,
    json_path: Json = None,
    part: Annotated[str, typer.Option("--part", help="held, tune or all, by wording.")] = "held",
) -> None:
    """Injections that the rules see, by kind, and false alarms over passages of sets."""
    if part not in ("held", "tune", "all"):
        raise RequestError(f"--part is {part!r:.40}, wanted held, tune or all")
    given = ["--part", part]
    given += ["--data", str(data)] if data else []
    given += ["--json", str(json_path)] if json_path else []
    status = in_one_thread(INJECTION, given)
    if status != 0:
        raise typer.Exit(status)


@app.command("pii")
def pii(
    data: Annotated[Path, typer.Option("--data", help="Texts with spans, gzip JSON lines.")],
    json_path: Json = None,
) -> None:
    """F1 of the recognisers of personal data by category, beside presidio's patterns."""
    given = ["--data", str(data)]
    given += ["--json", str(json_path)] if json_path else []
    status = in_one_thread(PII, given)
    if status != 0:
        raise typer.Exit(status)


@app.command("relay")
def relay(
    at_a_time: Annotated[
        str, typer.Option("--at-a-time", help="Numbers of open calls, with commas between.")
    ] = "1,8,32",
    facts: Annotated[int, typer.Option("--facts", min=100, help="Passages in the store.")] = 2_000,
    calls: Annotated[
        int, typer.Option("--calls", min=8, help="Calls of a round, of each kind.")
    ] = 64,
    rounds: Annotated[
        int, typer.Option("--rounds", min=1, help="Bare and relayed calls in turns.")
    ] = 7,
    budget: Annotated[int, typer.Option("--budget", min=1, help="Tokens of an envelope.")] = 2_048,
    embedder: Annotated[
        str, typer.Option("--embedder", help="minilm, or hash for trying this out.")
    ] = "minilm",
    json_path: Json = None,
) -> None:
    """What the whole relay costs over a bare LiteLLM call, by step, on a loopback server."""
    if not all(one.strip().isdecimal() and int(one) > 0 for one in at_a_time.split(",")):
        raise RequestError(f"--at-a-time is {at_a_time!r:.40}, wanted numbers from 1 with commas")
    if embedder not in ("minilm", "hash"):
        raise RequestError(f"--embedder is {embedder!r:.40}, wanted minilm or hash")
    given = ["--at-a-time", at_a_time, "--facts", str(facts), "--calls", str(calls)]
    given += ["--rounds", str(rounds), "--budget", str(budget), "--embedder", embedder]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        status = in_one_thread(RELAY, [*given, "--quiet", "--json", str(path)])
        if status != 0:
            raise typer.Exit(status)
        text = path.read_text(encoding="utf-8")
    if json_path:
        json_path.write_text(text, encoding="utf-8")
    report = json.loads(text)
    drawn = Table(title="Processor time, milliseconds a call", title_justify="left")
    drawn.add_column("", overflow="fold")
    for level in report["levels"]:
        drawn.add_column(f"{level} at a time", justify="right")
    for row in relay_table(report):
        drawn.add_row(*(Text(cell) for cell in row))
    terminal().print(drawn, _demands(report))


@app.command("sentences")
def sentences(
    data: Annotated[
        Path, typer.Option("--data", help="Folder of the data sets, or the file of sentences.")
    ],
    json_path: Json = None,
) -> None:
    """Boundary F1 of the sentence splitter beside pysbd, Punkt and LlamaIndex's."""
    given = ["--data", str(data)]
    given += ["--json", str(json_path)] if json_path else []
    raise typer.Exit(in_one_thread(SENTENCES, given))


@app.command("windows")
def windows(
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of sets; without, this Python's own text.")
    ] = None,
    json_path: Json = None,
    part: Annotated[str, typer.Option("--part", help="tune or held, by document.")] = "tune",
    most: Annotated[int, typer.Option("--most", min=4, help="Sessions before any is broken.")] = 80,
    lexical: Annotated[bool, typer.Option("--lexical", help="Without the embedder.")] = False,
) -> None:
    """How well stages 6 to 9 tell coherent windows from broken ones."""
    if part not in ("tune", "held"):
        raise RequestError(f"--part is {part!r:.40}, wanted tune or held")
    given = ["--part", part, "--most", str(most)]
    given += ["--data", str(data)] if data else []
    given += ["--json", str(json_path)] if json_path else []
    given += ["--lexical"] if lexical else []
    status = in_one_thread(WINDOWS, given)
    if status != 0:
        raise typer.Exit(status)


def _checked(facts: str, embedder: str) -> None:
    sizes = facts.split(",")
    if not all(size.strip().isdecimal() and int(size) >= FEWEST for size in sizes):
        raise RequestError(f"--facts is {facts!r:.40}, wanted numbers from {FEWEST} with commas")
    if embedder not in ("minilm", "hash"):
        raise RequestError(f"--embedder is {embedder!r:.40}, wanted minilm or hash")


def _show(report: dict[str, Any]) -> None:
    drawn = Table(title="Fabric, CPU milliseconds", title_justify="left")
    for name, side in (("facts", "right"), ("what", "left"), ("ms", "right")):
        drawn.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for name, side in (("times ours", "right"), ("recall", "right"), ("", "left")):
        drawn.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    for row in table(report):
        drawn.add_row(*(Text(cell) for cell in row))
    source = report["source"]
    terminal().print(
        drawn,
        _demands(report),
        Text(
            f"{source['passages']} of {source['found']} distinct passages out of the documentation "
            f"inside {len(source['packages'])} installed packages, embedder {report['embedder']}."
        ),
    )


def _demands(report: dict[str, Any]) -> Table:
    drawn = Table(title="What was asked for", title_justify="left")
    for name in ("", "what", "wanted", "measured"):
        drawn.add_column(name, overflow="fold")
    for bar in report["bars"]:
        said = {True: ("met", "green"), False: ("not met", "red"), None: ("not measured", "")}
        word, style = said[bar["met"]]
        drawn.add_row(
            Text(word, style), *(Text(bar[key]) for key in ("name", "wanted", "measured"))
        )
    return drawn
