"""Five roles with a contract each: planner, retriever, verifier, synthesizer, sentinel.

In: a question and a `RuntimeState`. Out: an answer with citations that was checked, or why there is
none, and a trace of every hand-over. Read `records.py` (contracts and what is handed over),
`handover.py` (the gate), `standard_roles.py`, `verifier.py` and `sentinel.py`. The adapters run the
roles; `langchain/roles.py` is a LangGraph graph of them.
"""
