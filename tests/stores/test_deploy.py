"""`examples/deploy`: the logins on a real server, and the options that its files name."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import psycopg
import pytest
import yaml
from typer.testing import CliRunner

from crp_integrations import Relay
from crp_integrations.cli.app import app
from crp_integrations.errors import AccessDenied
from crp_integrations.stores.postgres import PostgresStore
from tests.doubles import HashEmbedder
from tests.postgres import server
from tests.requirements.rows import ROOT

DEPLOY = ROOT / "examples" / "deploy"
CHART = DEPLOY / "chart"
COMMAND = re.compile(r"--[a-z][a-z-]+")


def test_the_login_of_the_script_does_what_a_gateway_needs_and_no_more(tmp_path: Path) -> None:
    with server().database() as name:
        script = tmp_path / "logins.sql"
        shutil.copy(DEPLOY / "logins.sql", script)
        for place in (*reversed(tmp_path.parents), tmp_path, script):
            if place.is_relative_to("/tmp") and place != Path("/tmp"):
                place.chmod(0o755)
        values = (f"database={name}", "password=a-password", "ON_ERROR_STOP=1")
        options = [part for value in values for part in ("-v", value)]
        server().run("psql", "-d", server().address(name), *options, "-f", str(script))
        address = server().address(name, "crp", "a-password")
        try:
            store = PostgresStore(address)
            with Relay.open(store, embedder=HashEmbedder(), key="ab" * 32) as relay:
                relay.add(["The walrus sleeps on the northern ice until noon on every day."])
                relay.ask("Where does the walrus sleep?", model="extractive")
                relay.fabric.maintain()
                assert relay.verify().state == "VALID" and not relay.fabric.doctor().findings
            with pytest.raises(AccessDenied):
                store.admit("acme", "another-password")
            with psycopg.connect(address, autocommit=True) as raw:
                names = {
                    row[0]
                    for row in raw.execute(
                        "SELECT application_name FROM pg_stat_activity WHERE usename = 'crp'"
                    )
                }
                assert "crp" in names
                for statement in (
                    "CREATE ROLE x",
                    "CREATE DATABASE x",
                    "CREATE TABLE public.x (y int)",
                    "COPY (SELECT 1) TO PROGRAM 'true'",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        raw.execute(statement)
            with psycopg.connect(server().address(name), autocommit=True) as raw:
                raw.execute("ALTER ROLE crp CREATEROLE")
            for password in ("first-password", "second-password"):
                role = store.admit("acme", password)
                psycopg.connect(server().address(name, role, password)).close()
            assert store.dismiss("acme") and store.namespaces() == ["local"]
            store.close()
        finally:
            with psycopg.connect(server().address(name), autocommit=True) as raw:
                raw.execute("DROP OWNED BY crp CASCADE")
                raw.execute("DROP ROLE crp")


def test_the_files_name_options_that_exist() -> None:
    help_of = {
        name: CliRunner().invoke(app, [*name.split(), "--help"]).output
        for name in ("serve", "fabric maintain")
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
    for part in ("logins.sql", "logins.sh"):
        assert any(part in volume for volume in services["db"]["volumes"])


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
