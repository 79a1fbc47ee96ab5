"""Retrieval with documents that change: little of a prompt's beginning ever comes again.

locust -f rag.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("rag.toml")


class RetrievalAgent(Agent):
    """Asks about other documents each time."""
