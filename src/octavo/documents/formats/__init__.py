"""One file format a file. Each has `read(data) -> Iterator[Page]`.

Raises of all: FileFormatError if the bytes are damaged, UnsupportedError if the text cannot be
had. They are called in the reading process only.
"""
