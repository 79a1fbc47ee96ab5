"""Simulated endpoint: a stand-in for vLLM with a tiered KV cache, and the clock-free core that the what-if shares.

Bottom up: `streams` (token sequences as a tree), `store` (one tier's prefix cache), `profile` and `cost`
(the machine), `engine` (the scheduler: pure, no clock, no I/O), `driver` (the engine on the wall clock),
`http` (vLLM's surface). Whatever comes out is the profile's numbers, never evidence about a server.
"""
