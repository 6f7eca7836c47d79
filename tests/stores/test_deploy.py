"""`examples/deploy`: the options, variables and logins that its files name."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from crp_integrations.cli.app import app
from tests.requirements.rows import ROOT

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


@pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed")
@pytest.mark.parametrize("tenants", [[], ["acme", "a tenant of: odd 'letters'"]])
def test_the_chart_renders(tenants: list[str], tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"tenants": tenants, "arguments": ["--rate", "60"]}))
    done = subprocess.run(
        ["helm", "template", "r", str(CHART), "-f", str(values)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kinds = [part["kind"] for part in yaml.safe_load_all(done.stdout)]
    assert kinds == ["Deployment", "Service", *["CronJob"] * len(tenants)]
