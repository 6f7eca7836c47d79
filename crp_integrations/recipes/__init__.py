"""How the shipped weights were made: trained weights go in, the files of `weights/` come out.

Read `minilm.py`, then `bert.py`. A recipe is run by hand when a model changes; two runs give
the same bytes, and the hashes they print are the ones in the cards. No other room imports this
one, and nothing here is needed to use the package.
"""
