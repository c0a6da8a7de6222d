"""Which routed experts have a place on the card: the pure half of the pool, without a device.

`pool` decides, token by token; `heat` keeps what a model's experts were asked for until the next
start; `trace` makes up routing with the locality of real models, for tests and benchmarks.
"""
