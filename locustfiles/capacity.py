"""How many live sessions does the endpoint carry within an SLO? Adds sessions until too many later turns miss it.

locust -f capacity.py --host http://127.0.0.1:8000 --headless
"""

from locust import LoadTestShape

from loadgen.measure.metrics import TTFT
from loadgen.observe.live import within
from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

LIMIT_S, SHARE = 8.0, 0.90  # 90 % of the later turns of a step within 8 endpoint seconds
STEP, STEP_S, MOST = 2, 60.0, 64  # sessions a step, wall seconds a step, sessions at most

workload("capacity.toml")


class CapacityAgent(Agent):
    """A live session."""


class UntilTooSlow(LoadTestShape):
    """Each step is judged by its own turns; the last one that held is the answer."""

    users, seen, good = STEP, 0, 0

    def tick(self):
        if self.get_run_time() >= STEP_S * self.users / STEP:
            ttft = self.runner.environment.loadgen.master.merged().get(TTFT, "reuse")
            turns, self.seen = ttft.n - self.seen, ttft.n
            share, self.good = (within(ttft, LIMIT_S) - self.good) / max(1, turns), within(ttft, LIMIT_S)
            print(f"{self.users} sessions: {share:.1%} of {turns} later turns within {LIMIT_S} s", flush=True)
            if share < SHARE or self.users >= MOST:
                print(f"capacity: {self.users - STEP if share < SHARE else self.users} sessions", flush=True)
                return None
            self.users += STEP
        return self.users, 100
