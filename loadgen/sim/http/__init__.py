"""vLLM's HTTP surface over the simulated engine. One module an API; bodies and errors as vLLM 0.32 sends them."""
