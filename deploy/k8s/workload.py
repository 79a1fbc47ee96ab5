"""What Locust runs in the cluster: the workload file beside it."""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("/config/workload.toml")


class ClusterAgent(Agent):
    """A lane that plays what the schedule deals."""
