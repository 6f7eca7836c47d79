"""The third step of a schema: uses of facts, apart from the facts.

A change of a fact's row writes a new one into each of its indexes, and runs what watches `facts`.
"""

from __future__ import annotations

from typing import Final

STEP: Final = (
    """CREATE TABLE fact_uses (
        fact BIGINT PRIMARY KEY REFERENCES facts (fact) ON DELETE CASCADE,
        uses BIGINT NOT NULL, last_used_at TEXT COLLATE "C" NOT NULL
    )""",
    # Whoever was let in before may do with it what they may do with the table beside it.
    """DO $$ DECLARE
        given record;
    BEGIN
        FOR given IN
            SELECT grantee, privilege_type FROM pg_class, aclexplode(relacl)
            WHERE oid = 'fact_findings'::regclass AND grantee NOT IN (0, relowner)
        LOOP
            EXECUTE format(
                'GRANT %s ON fact_uses TO %s', given.privilege_type, given.grantee::regrole
            );
        END LOOP;
    END $$""",
)
