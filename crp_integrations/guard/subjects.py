"""Who is asking."""

from __future__ import annotations

from crp_integrations.records import Part

LOCAL_TENANT = "local"


class Subject(Part):
    """A tenant's user, agent or process.

    Attributes:
        tenant: the tenant's name; an empty one is denied everywhere.
        name: the user, agent or process within the tenant.
        roles: roles that a guard may look at.
    """

    tenant: str
    name: str = "local"
    roles: tuple[str, ...] = ()


LOCAL = Subject(tenant=LOCAL_TENANT)
