"""How well stages 6 to 9 tell coherent windows from broken ones.

Long documents are cut into windows of some paragraphs: three earlier answers and a present one.
Against them stand the same with one thing broken: the window of another document (flow), sentences
said before (repetition), an earlier sentence said again with another value or negation
(coherence), a sub-query without its answer (completeness). Read `data`, then `score`.
"""
