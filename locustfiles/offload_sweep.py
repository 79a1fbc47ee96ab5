"""The offload sweep: contexts that do not fit together into GPU memory, in the order that defeats an LRU.

locust -f offload_sweep.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("sweep.toml")


class SweepAgent(Agent):
    """Plays the turn that comes next in the sweep."""
