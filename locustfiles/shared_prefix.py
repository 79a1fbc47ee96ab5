"""Negative control: one long prefix for everybody, which stays in GPU memory.

locust -f shared_prefix.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("shared-prefix.toml")


class SharedPrefixAgent(Agent):
    """Shares all but the end of its prompt with everybody."""
