"""What a model remembers of the tokens it has seen: attention pages and recurrent states.

`state` declares it, `layers` and `batch` are what operations see, `formats/` lays out the bytes,
`cache` allocates and shares, `prefix` keeps finished work for the next request, `disk` saves it.
"""
