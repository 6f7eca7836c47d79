"""What the operator of a database does with its tenants: let them in, and erase them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from crp_integrations.governance.artifacts import storage
from crp_integrations.governance.artifacts.records import ObjectStore
from crp_integrations.language import memo
from crp_integrations.stores.postgres import schema as schemas
from crp_integrations.stores.postgres import tenants, upkeep
from crp_integrations.stores.postgres.connection import Connection, translated
from crp_integrations.stores.postgres.notices import CHANNEL
from crp_integrations.stores.postgres.schema import schema_of


class Admitting:
    """The part of `PostgresStore` that tenants come and go by; its base."""

    _connection: Callable[[], AbstractContextManager[Connection]]
    _within: Callable[[Connection, str], AbstractContextManager[None]]
    _ready: set[str]

    @property
    def name(self) -> str:
        """Kind and place for people; without user and password."""
        raise NotImplementedError

    def drop(self, namespace: str, *, artifacts: Sequence[ObjectStore] | None = None) -> bool:
        """Erase a namespace with everything in it, its trail included: its schema is dropped.

        Artifacts lie elsewhere, so they are erased first, and again what came meanwhile; after an
        error, call it again.

        Args:
            artifacts: where artifacts of the namespace lie; empty when they are to stay.

        Returns:
            Whether there was one.

        Raises:
            StoreError: its trail names artifacts, and nobody said where they are; nothing is done.
        """
        schema = schema_of(namespace)
        with self._connection() as connection:
            there = schemas.is_there(connection, schema)
            if there and artifacts is None:
                tenants.refuse_artifacts(connection, namespace, schema)
            for objects in artifacts or ():
                storage.erase_tenant(objects, namespace)
            with self._within(connection, schema):
                connection.script(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')
                # Other processes may keep texts of it ready.
                connection.execute("SELECT pg_notify(?, ?)", [CHANNEL, schema])
            connection.script(upkeep.FORGET_STATISTICS)
            for objects in artifacts or ():
                storage.erase_tenant(objects, namespace)
        self._ready.discard(schema)
        memo.forget()
        return there

    def admit(self, namespace: str, password: str, *, reads: Sequence[str] = ()) -> str:
        """Make a tenant's schema and its login role, or give the role another password.

        For the operator: the address must be that of a login that may make schemas and roles.

        Args:
            reads: namespaces, such as shared ones, that the role may read and not write; those that
                it was let read before and that are not named are closed to it.

        Returns:
            The role's name, for the address that the tenant's processes open.

        Raises:
            AccessDenied: this login may not make roles.
            StoreError: the password is empty, or a namespace to read was never written.
        """
        schema = schema_of(namespace)
        with (
            self._connection() as connection,
            self._within(connection, schema),
            translated(self.name),
        ):
            return tenants.admit(connection, namespace, password, reads=reads)

    def dismiss(self, namespace: str, *, artifacts: Sequence[ObjectStore] | None = None) -> bool:
        """Erase a tenant: its role, its schema with everything in it, and its artifacts.

        Args:
            artifacts: as in `drop`.

        Returns:
            Whether there was a schema.

        Raises:
            StoreError: as `drop`.
        """
        there = self.drop(namespace, artifacts=artifacts)
        with (
            self._connection() as connection,
            self._within(connection, "public"),
            translated(self.name),
        ):
            tenants.dismiss(connection, namespace)
        return there
