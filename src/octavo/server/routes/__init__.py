"""One API family a file. Each has `router`, and nothing else needs to know of it."""
