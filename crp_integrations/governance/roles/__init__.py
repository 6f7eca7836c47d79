"""Five roles with a contract each: planner, retriever, verifier, synthesizer, sentinel.

In: a question and a `RuntimeState`. Out: an answer with citations that was checked, or why there is
none, and a trace of every hand-over. Read `records.py` (what is handed over), `ports.py` (what each
role does), `handing.py` (the gate), then `planning.py`, `citing.py`, `writing.py`, `verifying.py`
and `watching.py`. The adapters run the roles; `langchain/roles.py` is a LangGraph graph of them.
"""
