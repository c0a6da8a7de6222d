"""What a model will take of this machine, decided before anything is loaded.

`memory` is the arithmetic, `hardware` what the machine has, `planner` the decision. The loader and
the cache obey the plan; nothing about memory is decided anywhere else.
"""
