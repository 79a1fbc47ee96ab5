"""Sub-agents: a session spawns three children and waits for them.

locust -f fan_out.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("fan-out.toml")


class Orchestrator(Agent):
    """Plays a session and the sub-agents that it spawns."""
