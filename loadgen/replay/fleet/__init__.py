"""Many workers, one run: who plays what, how it ends, and what is merged on the way."""
