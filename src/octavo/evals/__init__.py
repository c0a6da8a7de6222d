"""Measurements of what models can do, on public questions: one file a kind of task.

Questions go the way of any request (`chat.py`). What is here knows questions and marks answers; it
prints nothing.
"""
