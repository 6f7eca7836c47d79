"""Strategies: how the windows of one answer are composed of Turns.

In: a request. Out: something playable by `relay/drive.py`. `composition.py` chooses the strategy of
a request, answers its parts side by side, and plays many questions at once; `continuation.py` goes
on while an answer is incomplete; `single_window.py` holds the passes and searches within one
window. Nothing here calls a model.
"""
