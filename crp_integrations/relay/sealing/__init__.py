"""What the end of a window leaves behind: in its session, journal and receipt, and for its caller.

In: an `Ending`. Out: what `relay/close.py` keeps in one transaction, and the response's headers.
Nothing here calls a model.
"""
