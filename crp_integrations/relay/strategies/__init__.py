"""Strategies: how the windows of one answer are composed of Turns.

In: a request. Out: something playable by `drive.py`. `choose.py` says which strategy a request
gets; `continued.py` goes on while an answer is incomplete; `parts.py` answers the parts of a
question side by side and brings them together; `batch.py` answers many questions. Passes within
one window (reflexive, pull, agentic) are `relay/passes.py`. Nothing here calls a model.
"""
