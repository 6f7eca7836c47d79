"""The guard that the settings ask for."""

from __future__ import annotations

import json
from typing import Any

from crp_integrations.engines.bundles import read_bundle
from crp_integrations.engines.rego import RegoEngine
from crp_integrations.errors import ConfigError, EngineError
from crp_integrations.guard.access import ENTRYPOINT, access
from crp_integrations.guard.decisions import AllowAll, Guard
from crp_integrations.guard.governed_exceptions import GovernedException, grant_exception
from crp_integrations.guard.policy_guard import PolicyGuard
from crp_integrations.guard.ports import Bundle
from crp_integrations.guard.settings import GuardSettings


def guard_of(settings: GuardSettings) -> Guard:
    """The policy's guard; where the settings ask for no policy, the one that allows everything.

    Raises:
        ConfigError: the bundle cannot be read or built, the server's address is none, or the
            policy that ships has no such entrypoint.
    """
    if not settings.wanted:
        return AllowAll()
    if settings.opa_url:
        # Brings httpx, which takes longer to load than a store to open.
        from crp_integrations.engines.opa import OpaEngine

        server = OpaEngine(settings.opa_url, timeout_s=settings.opa_timeout_s)
        # What the server decides by is its own matter, so the bundle stands for the address.
        remote = Bundle(
            name="opa", module="", data={"url": settings.opa_url}, entrypoint=settings.entrypoint
        )
        return PolicyGuard(server, remote, remember=False, most_kept=settings.most_kept)
    own = settings.bundle
    if own is None and settings.entrypoint != ENTRYPOINT:
        raise ConfigError(
            f"guard.entrypoint is {settings.entrypoint!r:.80}, which the policy that ships lacks; "
            "name a guard.bundle or a guard.opa_url that has it"
        )
    engine = RegoEngine(most_kept=0)
    if own is None:
        return PolicyGuard(engine, access(), most_kept=settings.most_kept)
    bundle = read_bundle(own, settings.entrypoint)
    # What ships is built at the first decision; a policy of one's own may have an error, with
    # which every decision would deny.
    try:
        engine.prepare(bundle)
    except EngineError as error:
        raise ConfigError(
            f"guard.bundle {str(own)!r:.120} is no policy that can be used: {error}"
        ) from error
    return PolicyGuard(engine, bundle, most_kept=settings.most_kept)


def read_exceptions(settings: GuardSettings) -> tuple[GovernedException, ...]:
    """The governed exceptions of the settings' JSON file, a list of objects; none without a file.

    Raises:
        ConfigError: the file cannot be read, or is no list of objects.
        RequestError: an exception lacks what makes it one; names the fields.
    """
    path = settings.exceptions
    if path is None:
        return ()
    try:
        told: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"guard.exceptions {str(path)!r:.120} cannot be read: {error}") from error
    if not isinstance(told, list) or not all(isinstance(one, dict) for one in told):
        raise ConfigError(f"guard.exceptions {str(path)!r:.120} is no list of objects")
    return tuple(grant_exception(one) for one in told)
