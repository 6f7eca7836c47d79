"""How much of the evidence for a question stands in a context of so many tokens.

In: a folder of data sets (`data.py` tells the format). Out: a report of what our envelope and
its peers pack for every question. Read `run.py`, then `metrics.py` for what is counted, `axis.py`
for how packed text is found again in the documents, `ours.py` for the product's own path, and
`tests/bench/peers/` for the others. It measures only: nothing here is fitted.
"""
