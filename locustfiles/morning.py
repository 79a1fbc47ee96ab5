"""The morning ramp: sessions arrive on their own, in bursts, whether the server keeps up or not.

locust -f morning.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("morning.toml")


class Arrival(Agent):
    """A session that arrives."""
