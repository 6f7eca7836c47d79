"""Rank, pack and order beside other libraries and the printed loops, on made-up candidates.

Read in this order: `data`, `literal`, `stored`, `run`. Needs nothing but the package; a peer
that is not installed is left out and said so.
"""
