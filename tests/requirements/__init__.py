"""What the documents demand, one id each, and which tests show it.

`part1.csv` to `part9.csv` hold the ids; `rows.py` reads them, `marks.py` finds the marks in the
tests, `supported.py` writes `docs/evidence/supported.md`, `spec_map.py` writes `docs/evidence/spec-map.md`.
"""
