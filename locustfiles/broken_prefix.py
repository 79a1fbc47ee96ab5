"""Prompts that begin with something new each time: what a time stamp in front costs.

locust -f broken_prefix.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("broken-prefix.toml")


class ForgetfulAgent(Agent):
    """Never begins a prompt the same way twice."""
