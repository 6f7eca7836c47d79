"""Receipts measured: what they cost, and random packs replayed elsewhere.

`costs.py` times and weighs them. `packs.py` makes random packs, `replays.py` has them replayed in
other processes, with other hash seeds and Pythons, and `again.py` is what runs there.
"""
