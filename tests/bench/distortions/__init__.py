"""How often the provenance engine sees a changed sentence, and how often it cries out over none.

Real text goes in: data sets given by path and the reference manual and documentation of this
Python. Out come cases, each a passage as evidence and a claim that says what the passage says, or
something else by one edit. Read `text`, then the makers (`amounts`, `sense`, `names`, `wording`),
then `__main__`. All but the last import nothing from `crp_integrations.language` or `.dpe`: a generator
that read numbers as the engine reads them would not see what the engine misreads. `tests/bench`
enforces it.
"""
