"""Stages: one file for each stage of CRP-SPEC-005 that this version runs, by its number.

In: the state that earlier stages left. Out: the state with this stage's word added. A stage
never takes a finding back and never changes the answer's text.
"""
