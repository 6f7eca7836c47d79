"""The steps of a schema. A step that was released is never changed; add another one."""

from __future__ import annotations

from crp_integrations.stores.postgres import series, uses
from crp_integrations.stores.postgres.rights import DEFINED
from crp_integrations.stores.postgres.tables import FACTS, JOBS, JOURNAL, RECEIPTS, SESSIONS

STEPS: tuple[tuple[str, ...], ...] = (
    (*FACTS, *JOURNAL, *JOBS, *SESSIONS, *RECEIPTS, *DEFINED),
    series.STEP,
    uses.STEP,
)
VERSION = len(STEPS)
# Under this name `own` keeps the number of the last step that was taken.
VERSION_NAME = "schema_version"
# What the server and its extension must be; earlier pgvector lacks fixes of damaged indexes.
OLDEST_SERVER = 160_000
OLDEST_PGVECTOR = (0, 8, 4)
