"""Code that the framework adapters share; each adapter contains only its framework's own code.

Input: a framework's messages, models and documents, read by its adapter. Output: questions,
facts and answers of a relay. No framework is imported here.
"""
