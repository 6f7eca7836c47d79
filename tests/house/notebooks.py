"""Runs the code cells of a notebook in order, in one namespace, without Jupyter.

`python -m tests.house.notebooks FILE` prints the outputs of each cell as JSON; with `--write` they
replace the file's own. What changes from run to run, as counts of executions do, is not kept.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

Output = dict[str, Any]


def cells(path: Path) -> list[dict[str, Any]]:
    """The cells of a notebook, their sources as one text each."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


def run(path: Path) -> list[list[Output]]:
    """The outputs of each code cell: what is printed, and the value of its last expression."""
    names: dict[str, Any] = {"__name__": "__main__"}
    made = []
    for number, cell in enumerate(cells(path), 1):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse(cell["source"], f"{path.name}, cell {number}")
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        outputs: list[Output] = []
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
            value = None
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
        if printed.getvalue():
            text = printed.getvalue().splitlines(keepends=True)
            outputs.append({"name": "stdout", "output_type": "stream", "text": text})
        if value is not None:
            outputs.append(_shown(value))
        made.append(outputs)
    return made


def _shown(value: object) -> Output:
    plain = repr(value)
    data = {"text/plain": [plain if len(plain) <= 200 else f"<{type(value).__name__}>"]}
    if html := getattr(value, "_repr_html_", None):
        data["text/html"] = html().splitlines(keepends=True)
    return {"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}


def write(path: Path, outputs: list[list[Output]]) -> None:
    """Put these outputs into a notebook."""
    whole = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in whole["cells"] if cell["cell_type"] == "code"]
    for cell, made in zip(code, outputs, strict=True):
        cell["outputs"] = made
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    outputs = run(given.path)
    if given.write:
        write(given.path, outputs)
    else:
        print(json.dumps(outputs))


if __name__ == "__main__":
    main()
