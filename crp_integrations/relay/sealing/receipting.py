"""The receipt on a window: signed and kept in the transaction that seals it."""

from __future__ import annotations

from collections.abc import Set

from crp_integrations.audit.records import WindowSeal
from crp_integrations.audit.window_seals import parents_of
from crp_integrations.dpe.records import Report
from crp_integrations.envelope.continuation import SUMMARY_SOURCE
from crp_integrations.fabric.namespace import Namespace
from crp_integrations.fabric.ports import Transaction
from crp_integrations.receipt.dsse import signing_key
from crp_integrations.receipt.leaves import salt_key
from crp_integrations.receipt.ports import receipts_of
from crp_integrations.receipt.records import issue
from crp_integrations.receipt.redaction import erased
from crp_integrations.receipt.statement import Chain
from crp_integrations.relay.sealing.ending import Ending
from crp_integrations.relay.sealing.leaving import Left
from crp_integrations.relay.sealing.unwritten import Made
from crp_integrations.relay.world import World
from crp_integrations.session.ports import sessions_of


def record(
    transaction: Transaction,
    namespace: Namespace,
    world: World,
    ending: Ending,
    seal: WindowSeal,
    report: Report,
    left: Left,
    stored: Set[str],
) -> Made | None:
    """Sign the receipt on a window, and keep it where its report is kept.

    Args:
        report: with identity and hash.
        stored: those of the receipt's facts that are on disk; with another among them, which is
            held in memory alone, the receipt is so too.

    Returns:
        None where receipts are off, or the store keeps none.

    Raises:
        StoreError: it could not be kept.
    """
    kept = receipts_of(transaction)
    if ending.draft is None or kept is None:
        return None
    with world.tracer.step("receipt"):
        draft = ending.draft(seal, report)
        of = {leaf.fact_id: leaf.source_id for leaf in draft.leaves if leaf.fact_id}
        written = left.kept and (
            of.keys() <= stored
            or all(
                id_ in stored or source_id.startswith(SUMMARY_SOURCE)
                for id_, source_id in of.items()
            )
        )
        tenant = namespace.subject.tenant
        master = world.keyring.master()
        receipt = issue(
            draft,
            Chain.of(seal, parents_of(seal)),
            signing_key(master, tenant),
            salt_key(master, tenant),
        )
        if written:
            if sessions_of(transaction).report(seal.window_id) is None:
                # Something that it came from was withdrawn while it was under way.
                receipt = erased(receipt, of.keys(), said=True)
            kept.add(receipt, {id_: source_id for id_, source_id in of.items() if source_id})
    return Made(receipt, written)
