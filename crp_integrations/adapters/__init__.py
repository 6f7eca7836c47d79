"""What the adapters of frameworks share, so that each holds only its framework's own code.

In: a framework's messages, models and documents through functions of its adapter. Out: questions,
facts and answers of a relay. No framework is imported here.
"""
