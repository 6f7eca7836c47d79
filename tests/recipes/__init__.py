"""How the shipped weights were made: trained weights go in, the files of `weights/` come out.

Read `minilm.py`. A recipe is run by hand in a clone when a model changes; two runs give the same
bytes, and the hashes they print are the ones in the cards. Nothing here is in a wheel.
"""
