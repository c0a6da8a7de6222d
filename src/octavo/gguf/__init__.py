"""GGUF files: bytes on disk, read with care and written whole."""
