"""Strategies: how the windows of one answer are composed of Turns.

In: a request. Out: something playable by `drive.py`. `composition.py` chooses the strategy of a
request, and plays many questions at once; `continuation.py` goes on while an answer is incomplete;
`fan_out.py` answers the parts of a question side by side; `single_window.py` holds the passes and
searches within one window. Nothing here calls a model.
"""
