"""Files of people -> text with page references: plain text, web pages, PDF, Word.

`reading.read` is the way in. Files are hostile input: they are read in a process of their own,
with a limit of time, memory and length. One format is one file in `formats/`.
"""
