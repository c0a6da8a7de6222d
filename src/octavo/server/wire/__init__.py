"""How each API family writes requests, answers and events. No HTTP, no engine."""
