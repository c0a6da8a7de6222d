"""From the name of a model to verified files on disk."""
