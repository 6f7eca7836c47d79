"""Checks a tool call before it runs: each argument against the conversation.

Input: an action (the call, the tool's definition, the evidence), rules, and a judge's reply.
Output: the prompt (`action_call`), and a report with a status for each argument (`verdict`).
Nothing here calls a model.
"""
