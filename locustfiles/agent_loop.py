"""Agents at work: each turn sends its whole history again, as coding agents do.

    locust -f agent_loop.py --host http://127.0.0.1:8000 --headless
    locust -f agent_loop.py --host http://127.0.0.1:8000 --trace my.jsonl --schedule closed -u 8

`locust -f agent_loop.py --help` lists loadgen's flags in a group of their own.
"""

from loadgen.replay.plugin import Agent


class CodingAgent(Agent):
    """A lane that plays what the schedule deals."""
