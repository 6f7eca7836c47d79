"""`crp bench …`: the measurements of all files as one group."""

from __future__ import annotations

from crp_integrations.cli import (
    bench,
    bench_compaction,
    bench_gateway,
    bench_guard,
    bench_receipts,
    bench_rot,
)

app = bench.app
app.command("compaction")(bench_compaction.compaction)
app.command("receipts")(bench_receipts.receipts)
app.command("gateway")(bench_gateway.gateway)
app.command("guard")(bench_guard.guard)
app.command("rot")(bench_rot.rot)
