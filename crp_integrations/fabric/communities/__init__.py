"""Which facts belong together: nearest neighbours, Leiden communities, and their names.

Spec: CRP-SPEC-009 §5
"""
