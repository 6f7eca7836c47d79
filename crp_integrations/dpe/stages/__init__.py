"""Stages of CRP-SPEC-005, in the order in which `dpe/pipeline.py` runs them.

Input: the state after the earlier stages. Output: the state with this stage's results added. A
stage never removes a finding and never changes the answer's text.
"""
