"""`examples/deploy`: the options that its files name, and their commands on a real server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml
from typer.testing import CliRunner

from crp_integrations.cli.app import app
from tests.gateway.application import FACTS, QUESTION
from tests.postgres import server
from tests.requirements.rows import ROOT
from tests.servers import openai_double
from tests.stores.test_postgres_logins import database  # noqa: F401 - a fixture

DEPLOY = ROOT / "examples" / "deploy"
CHART = DEPLOY / "chart"
COMMAND = re.compile(r"--[a-z][a-z-]+")
PASSWORD = re.compile(r"CRP_[A-Z]+_PASSWORD")


def test_the_files_name_options_that_exist() -> None:
    help_of = {
        name: CliRunner().invoke(app, [*name.split(), "--help"]).output
        for name in ("serve", "fabric maintain", "fabric init")
    }
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    serving = [*services["gateway"]["command"]]
    assert serving[0] == "serve" and services["maintain"]["entrypoint"] == [
        "crp",
        "fabric",
        "maintain",
    ]
    template = (CHART / "templates" / "gateway.yaml").read_text()
    named = {*COMMAND.findall(" ".join(serving)), *COMMAND.findall(template)}
    assert {"--json-logs", "--upstream", "--tenant"} <= named
    for option in named:
        assert any(option in text for text in help_of.values()), option
    making = services["init"]
    assert making["entrypoint"][:4] == ["crp", "fabric", "init", "--postgres"]
    assert {*making["environment"]} - {"PGPASSWORD"} == {*PASSWORD.findall(help_of["fabric init"])}
    assert services["gateway"]["environment"]["CRP_STORE"].startswith("postgresql://crp_writer@db")


def test_the_image_takes_what_the_wheel_is_built_from_and_no_secret() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    copied = {
        source
        for line in dockerfile.splitlines()
        if line.startswith("COPY ")
        for source in line.split()[1:-1]
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert copied == {
        "pyproject.toml", "LICENSE", project["project"]["readme"], *wheel["packages"],
        *wheel["force-include"], wheel["hooks"]["custom"]["path"],
    }  # fmt: skip
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*" and {"**/.env", "**/keys"} <= {*ignored}
    assert {line[1:] for line in ignored if line.startswith("!")} == {
        source.partition("/")[0] for source in copied
    }
    assert {"examples/deploy/.env", "examples/deploy/keys/"} <= {
        *(ROOT / ".gitignore").read_text().splitlines()
    }
    (extras,) = re.findall(r"/src\[([a-z,-]+)\]", dockerfile)
    assert {*extras.split(",")} == {"communities", "gateway", "postgres"}


# `helm template` where helm is installed; the commands of the compose file need no engine.
helm = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")


def rendered(tmp_path: Path, **values: object) -> list[dict[str, Any]]:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = ["helm", "template", "r", str(CHART), "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


@helm
@pytest.mark.parametrize("tenants", [[], ["acme", "a tenant of: odd 'letters'"]])
def test_the_chart_renders(tenants: list[str], tmp_path: Path) -> None:
    odd = ["a: b", 'c "d" #e']
    parts = rendered(
        tmp_path, tenants=tenants, arguments=["--rate", "60"], models=odd, upstream="http://h #x"
    )
    assert sorted(part["kind"] for part in parts) == [
        *["CronJob"] * len(tenants), "Deployment", "Service"
    ]  # fmt: skip
    args = arguments_of(parts)
    assert args[-2:] == ["--rate", "60"] and "--upstream=http://h #x" in args
    assert [arg.removeprefix("--model=") for arg in args if "--model" in arg] == odd


def arguments_of(parts: list[dict[str, Any]]) -> list[str]:
    (deployment,) = (part for part in parts if part["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [*container["args"]]


@dataclass
class Composed:
    """The services of the compose file, run on this machine as their commands say."""

    place: str
    folder: Path
    values: dict[str, str]

    def filled(self, text: str) -> str:
        text = re.sub(
            r"\$\{(\w+)(?::[?-]([^}]*))?\}", lambda m: self.values.get(m[1]) or m[2] or "", text
        )
        return (
            text.replace("@db/kb", f"@{self.place}")
            .replace("/keys/", f"{self.folder}/keys/")
            .replace("0.0.0.0", "127.0.0.1")
        )

    def of(self, service: str) -> dict[str, Any]:
        return dict(yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"][service])

    def started(self, service: str, command: Sequence[str]) -> subprocess.Popen[str]:
        about = self.of(service)
        first, *rest = about.get("entrypoint", ["crp"])
        assert first == "crp"
        full = [self.filled(part) for part in [*rest, *command]]
        environment = {name: self.filled(value) for name, value in about["environment"].items()}
        return subprocess.Popen(
            [sys.executable, "-m", "crp_integrations.cli.app", *full],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
            env={**os.environ, **environment},
        )  # fmt: skip

    def run(self, service: str, *command: str) -> str:
        process = self.started(service, command)
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        return out


@pytest.mark.parametrize("kind", ["compose", pytest.param("chart", marks=helm)])
def test_the_commands_of_the_files_run(
    kind: str,
    database: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    password = "5a" * 8
    with psycopg.connect(server().address(), autocommit=True) as raw:
        raw.execute(f"ALTER ROLE postgres PASSWORD '{password}'")
    (tmp_path / "keys").mkdir()
    with openai_double(text="Plant 7 was built in 1957.") as model:
        composed = Composed(
            f"127.0.0.1:{server().port}/{database}",
            tmp_path,
            {
                **dict.fromkeys(
                    ("POSTGRES_PASSWORD", *PASSWORD.findall((DEPLOY / "compose.yaml").read_text())),
                    password,
                ),
                "CRP_KEY": "ab" * 32,
                "CRP_UPSTREAM": f"{model.url}/v1",
            },
        )
        composed.run("init")
        composed.run("init", "--tenant", "acme")
        keys = ("acme", "--keys", "/keys/crp-keys.jsonl")
        key = composed.run("gateway", "keys", *keys).strip()
        serving = composed.of("gateway")["command"]
        if kind == "chart":
            upstream = composed.values["CRP_UPSTREAM"]
            serving = arguments_of(rendered(tmp_path, upstream=upstream))
        process = composed.started("gateway", [*serving, "--port", "0"])
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "http://127.0.0.1:" in line)
            (url,) = re.findall(r"http://127\.0\.0\.1:\d+", line)
            asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": QUESTION}]}
            with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
                assert client.get("/readyz").status_code == 200
                facts = {"facts": [{"content": fact} for fact in FACTS]}
                assert client.post("/v1/facts", json=facts, timeout=60).status_code == 200
                answered = client.post("/v1/chat/completions", json=asked, timeout=60)
            assert answered.status_code == 200
            assert int(answered.headers["CRP-Context-Facts-Used"].partition("/")[0]) >= 1
        finally:
            process.terminate()
            process.communicate(timeout=60)
        if kind == "chart":
            parts = rendered(tmp_path, tenants=["acme"])
            (job,) = (part["spec"]["jobTemplate"] for part in parts if part["kind"] == "CronJob")
            (container,) = job["spec"]["template"]["spec"]["containers"]
            composed.run("gateway", *container["args"])
        else:
            composed.run("maintain", "--tenant", "acme")
