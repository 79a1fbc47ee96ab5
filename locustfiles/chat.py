"""Negative control: single-turn chat, where a tier behind HBM can win nothing.

locust -f chat.py --host http://127.0.0.1:8000 --headless
"""

from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

workload("chat.toml")


class ChatUser(Agent):
    """Asks once."""
