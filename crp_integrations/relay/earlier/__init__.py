"""What a window may know of those before it.

In: the windows that a session remembers. Out: what a continuation is given of them, which of them
a subject may hear of, and which rest on what has changed since.
"""
