"""What a user measures on his own data: how often a verdict on an answer is right.

`answers` reads labelled answers and has them judged, `figures` counts both directions, and
`crp eval answers` is their command. `data_rows` reads the files.
"""
