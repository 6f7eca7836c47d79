"""Rerankers: models that read a query and a text together and say how well they fit.

Read `cross_encoder`: one from a folder of ONNX files, and one around an object of the library
sentence-transformers. Those around objects of LangChain and LlamaIndex are in their adapters.
"""
