"""Places that models come from: one module each, named by the prefix that users write.

A module has `list_files(repo, client, settings) -> list[RemoteFile]` and `LABEL`, its name in
messages.
"""
