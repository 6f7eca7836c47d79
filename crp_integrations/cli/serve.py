"""`crp serve`, `crp keys` and `crp fabric init`: the gateway, its API keys, its database logins."""

from __future__ import annotations

import json
import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crp_integrations.cli import options
from crp_integrations.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from crp_integrations.gateway import Scope

# Gateway modules are imported in the functions, since they need an optional extra.
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Keys = Annotated[
    str, typer.Option("--keys", envvar="CRP_KEYS", help="Key file, made by crp keys TENANT.")
]


def serve(
    store: Annotated[
        str,
        typer.Argument(envvar="CRP_STORE", help="Folder or postgresql:// address of the store."),
    ],
    keys: Keys = "crp-keys.jsonl",
    upstream: Annotated[
        str, typer.Option("--upstream", help="Address of an OpenAI-compatible server, with /v1.")
    ] = "",
    upstream_key: Annotated[
        str,
        typer.Option("--upstream-key", help="Environment variable with the server's key."),
    ] = "OPENAI_API_KEY",
    context_limit: Annotated[
        int,
        typer.Option(
            "--context-limit",
            min=0,
            help="Context limit of the models in tokens; 0: as the server or their names imply.",
        ),
    ] = 0,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="A model that callers may use; repeatable."),
    ] = None,
    pass_field: Annotated[
        list[str] | None,
        typer.Option("--pass-field", help="A request field to pass to the upstream; repeatable."),
    ] = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 for a free one.")
    ] = 8080,
    rate: Annotated[
        float, typer.Option("--rate", min=0.001, help="Maximum requests per minute and key.")
    ] = 600.0,
    burst: Annotated[
        int,
        typer.Option("--burst", min=1, help="Requests that a key may send at once above the rate."),
    ] = 60,
    at_once: Annotated[
        int, typer.Option("--at-once", min=1, help="Maximum simultaneous requests per key.")
    ] = 64,
    body_bytes: Annotated[
        int, typer.Option("--body-bytes", min=1_000, help="Maximum bytes of a conversation.")
    ] = 1_000_000,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="Threads that read, examine and commit.")
    ] = 4,
    open_tenants: Annotated[
        int, typer.Option("--open-tenants", min=1, help="Maximum tenants kept open.")
    ] = 64,
    store_connections: Annotated[
        int,
        typer.Option("--store-connections", min=2, help="Maximum connections to a database."),
    ] = 16,
    busy_seconds: Annotated[
        float,
        typer.Option("--busy-seconds", min=0.1, help="Maximum seconds to wait for the store."),
    ] = 10.0,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="Safety policy that callers cannot relax."),
    ] = None,
    judge: options.Judge = None,
    judge_base: options.JudgeBase = None,
    judge_when: options.JudgeWhen = None,
    judge_failure: options.JudgeFailure = None,
    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", help="Serve /metrics without a key.")
    ] = False,
    buffer: Annotated[
        bool, typer.Option("--buffer", help="Hold back every stream until its verdict.")
    ] = False,
    no_log: Annotated[
        bool, typer.Option("--no-log", help="Do not log a line of ids for each request.")
    ] = False,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Log one JSON object a line, and nothing else.")
    ] = False,
    observe: Annotated[
        bool,
        typer.Option("--observe", help="Windows on /metrics, and spans to OTEL_EXPORTER_OTLP_…"),
    ] = False,
) -> None:
    """Serve the protocol over HTTP in front of your models.

    The models are those of an OpenAI-compatible server, or any that LiteLLM supports.
    """
    from crp_integrations.gateway import GatewaySettings, KeyFile, OpenAIServer, create_app
    from crp_integrations.gateway import serve as served
    from crp_integrations.gateway.app import judge_of
    from crp_integrations.gateway.server import check_free
    from crp_integrations.relay.settings import load
    from crp_integrations.stores.address import holds_store, is_address

    if not Path(keys).is_file():
        raise ConfigError(
            f"there is no key file {keys!r:.200}; make one with: crp keys TENANT --keys {keys}"
        )
    limits = GatewaySettings(
        models=tuple(model or ()),
        pass_fields=tuple(pass_field or ()),
        requests_per_minute=rate,
        burst=burst,
        busy_seconds=busy_seconds,
        at_once=at_once,
        body_bytes=body_bytes,
        threads=threads,
        tenants=open_tenants,
        store_connections=store_connections,
        open_metrics=open_metrics,
        live_streams=not buffer,
        context_limit=context_limit,
    )
    known = KeyFile(keys, every_seconds=limits.keys_seconds)
    if not known.all():
        raise ConfigError(f"key file {keys!r:.200} has no key; make one with: crp keys TENANT")
    server = None
    if upstream:
        server = OpenAIServer(
            upstream,
            api_key=os.environ.get(upstream_key, ""),
            timeout_s=load(None if is_address(store) else Path(store)).timeout_s,
            connections=limits.upstream_connections,
            most_bytes=limits.upstream_bytes,
            deadline_s=limits.upstream_seconds,
        )
    arguments: dict[str, Any] = {} if policy is None else {"policy": policy}
    with ExitStack() as stack:
        opening: dict[str, Any] = options.judging(judge, judge_base, judge_when, judge_failure)
        if opening:
            # Report an error in the judge's options now, not at the first question.
            judge_of(opening)
        if observe:
            from crp_integrations.observability.observers import serving_observer

            opening["tracer"] = stack.enter_context(serving_observer())
        application = create_app(
            store, keys=known, upstream=server, settings=limits, options=opening, **arguments
        )
        new = not is_address(store) and not holds_store(store)
        missing = store if new else ""
        if not json_logs:
            _warn(host, missing, partial(typer.echo, err=True))
        check_free(host, port)
        _configure_logging(access=not no_log, as_json=json_logs)
        if json_logs:
            _warn(host, missing, logging.getLogger(__name__).warning)
        served(application, host=host, port=port, settings=limits)


def _warn(host: str, missing: str, warn: Callable[[str], None]) -> None:
    """Warn if the store does not exist yet, or if other machines can reach the plain HTTP port."""
    if missing:
        warn(f"crp: there is no store at {missing!r} yet; every tenant is empty")
    if host not in LOOPBACK:
        warn(
            f"crp: other machines can reach {host}, and keys and texts go over plain HTTP; "
            "put TLS in front"
        )


def keys(
    tenant: Annotated[
        str, typer.Argument(help="Create a key for the facts and sessions of this tenant.")
    ] = "",
    revoke: Annotated[
        str, typer.Option("--revoke", help="Remove a key, by its id or the key itself.")
    ] = "",
    keys: Keys = "crp-keys.jsonl",
    name: Annotated[
        str, typer.Option("--name", help="User or process within the tenant, for the guard.")
    ] = "gateway",
    role: Annotated[
        list[str] | None, typer.Option("--role", help="Role for the guard; repeatable.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="ask, facts, audit or metrics; repeatable."),
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", min=1, max=36_500, help="Days until it expires.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List, create or revoke API keys of the gateway.

    A new key is printed only once; the file contains its hash. A running gateway stops accepting
    a revoked key within a second.
    """
    from crp_integrations.gateway.admission import EVERYTHING, KeyFile, new_key

    file = KeyFile(keys)
    if tenant and revoke:
        raise RequestError("give one of TENANT and --revoke")
    if not tenant and (role or scope or days is not None):
        raise RequestError("--role, --scope and --days need TENANT; give the tenant")
    if revoke:
        file.revoke(revoke)
    elif tenant:
        made, stored_key = new_key(
            tenant,
            name=name,
            roles=tuple(role or ()),
            scopes=_scopes(scope) or EVERYTHING,
            expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
        )
        file.add(stored_key)
        typer.echo(json.dumps({"key_id": stored_key.key_id, "key": made}) if as_json else made)
    elif as_json:
        rows = [key.model_dump(mode="json", exclude={"secret_hash"}) for key in file.all().values()]
        typer.echo(json.dumps(rows, indent=2))
    else:
        for key in file.all().values():
            until = key.expires_at.date().isoformat() if key.expires_at else "never expires"
            typer.echo(f"{key.key_id}  {key.tenant}  {key.name}  {','.join(key.scopes)}  {until}")


def _scopes(names: list[str] | None) -> tuple[Scope, ...]:
    from crp_integrations.gateway.admission import Scope

    scopes = tuple(Scope)
    for name in names or ():
        if name not in scopes:
            raise RequestError(f"--scope is {name!r:.40}, wanted one of {', '.join(Scope)}")
    return tuple(Scope(name) for name in names or ())


# Seconds to wait for the server and its locks.
_INIT_SECONDS = 10.0


def init(
    postgres: Annotated[
        str, typer.Option("--postgres", help="postgresql:// address of an administrator.")
    ],
    prefix: Annotated[
        str, typer.Option("--prefix", help="The owner; also PREFIX_writer and PREFIX_reader.")
    ] = "crp",
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", help="A tenant to make; repeatable.")
    ] = None,
    passwords: Annotated[
        str, typer.Option("--passwords", help="New PGPASSFILE for generated passwords.")
    ] = "crp.pgpass",
    as_json: options.AsJson = False,
) -> None:
    """Make the database logins of a store: owner, writer and reader, with the least rights.

    A password is that of CRP_OWNER_PASSWORD, CRP_WRITER_PASSWORD or CRP_READER_PASSWORD, or
    generated. A second run makes what is missing; passwords of logins that exist stay.
    """
    from crp_integrations.stores.address import store_at

    # Refuses another scheme, and a missing extra.
    store_at(postgres).close()
    from crp_integrations.stores.postgres.pool import PostgresPool
    from crp_integrations.stores.postgres.tenants import make_logins

    lines: list[str] = []
    draft = ""

    def choose(roles: Sequence[str]) -> Mapping[str, str]:
        nonlocal draft
        chosen = {}
        for role in roles:
            part = role.removeprefix(prefix).strip("_") or "owner"
            chosen[role] = os.environ.get(f"CRP_{part.upper()}_PASSWORD", "")
            if not chosen[role]:
                chosen[role] = secrets.token_urlsafe(24)
                lines.append(f"*:*:*:{role}:{chosen[role]}\n")
        if lines:
            path = Path(passwords)
            if os.path.lexists(path):
                raise ConfigError(
                    f"the file {passwords!r:.200} exists, and may hold passwords that nothing else "
                    "does; give another --passwords"
                )
            # Written before the roles are made, so that no password is lost.
            file, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
            with os.fdopen(file, "w", encoding="utf-8") as drafted:
                drafted.writelines(lines)
        return chosen

    tenants = [options.namespace_of(name, "") for name in tenant or ()]
    with closing(PostgresPool(postgres, _INIT_SECONDS, 2)) as pool:
        try:
            made, changed, lacking = make_logins(pool, prefix, choose, tenants)
        except BaseException:
            if draft:
                Path(draft).unlink(missing_ok=True)
            raise
        if draft:
            try:
                os.link(draft, passwords)
                Path(draft).unlink()
            except OSError:
                # The name was taken meanwhile, or the file system has no hard links.
                passwords = draft
        store = pool.address_of(f"{prefix}_writer")
    if as_json:
        done = {"made": made, "changed": changed, "not_granted": lacking, "store": store}
        done |= {"passwords": passwords} if lines else {}
        typer.echo(json.dumps(done))
        return
    names = f"{prefix} (owner), {prefix}_writer (gateway) and {prefix}_reader (reads only)"
    verb = f"made: {', '.join(made) or 'no login'}" if changed else "nothing to change"
    typer.echo(f"{verb}; {names} have their rights in {pool.name}")
    if lacking:
        typer.echo(f"not granted: {', '.join(lacking)}; run this as their owner or a superuser")
    if lines:
        typer.echo(f"passwords: {passwords}; use it as PGPASSFILE and keep it secret")
    typer.echo(f"next: crp serve '{store}'")


class JsonLines(logging.Formatter):
    """Formats a log message as one JSON object; the fields of the access log are its own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"at": at, "level": record.levelname, "logger": record.name}
        message = record.getMessage()
        if record.name == "crp_integrations.gateway.access":
            try:
                return json.dumps(line | json.loads(message))
            except (ValueError, TypeError):
                pass
        line["message"] = message
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _configure_logging(*, access: bool, as_json: bool) -> None:
    """Write log messages of the gateway and uvicorn to standard error."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else plain)
    logging.captureWarnings(as_json)
    if as_json:
        # Other packages' warnings and errors, which would else be plain text.
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.WARNING)
    for name in ("crp_integrations", "uvicorn"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    logging.getLogger("crp_integrations.gateway.access").disabled = not access
