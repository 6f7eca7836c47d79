"""What a relay does besides asking: compaction, context packs, artifacts, agents, receipts, counts.

Each module is a part of the front door, reached from `relay/relay.py` or `relay/doors.py`.
"""
