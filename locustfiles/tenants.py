"""A coding assistant with many tenants: prompts share much within a tenant and nothing between them.

locust -f tenants.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("tenants.toml")


class TenantAgent(Agent):
    """One of a tenant's developers."""
