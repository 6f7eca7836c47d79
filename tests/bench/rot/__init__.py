"""How a context holds up as it grows: distractors, order, noise, compaction, tenants, model.

In: a file of questions, each with the passage that answers it (`data.py`). Out: rows of figures by
scenario and system, a plot of each curve and one HTML report. Read `run.py` first, then
`scenarios.py` for what is asked of every system and `systems.py` for the three that are compared.
It measures only: nothing here is fitted.
"""
