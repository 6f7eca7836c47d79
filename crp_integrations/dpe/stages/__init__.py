"""Stages of CRP-SPEC-005, in the order in which `dpe/pipeline.py` runs them.

In: the state that earlier stages left. Out: the state with this stage's word added. A stage
never takes a finding back and never changes the answer's text.
"""
