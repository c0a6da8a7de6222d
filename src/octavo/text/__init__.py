"""Everything between strings and ids: tokenizers, templates, and the parts of an answer."""
