"""How many live sessions does the endpoint carry within an SLO? Adds sessions until too many later turns miss it.

locust -f capacity.py --host http://127.0.0.1:8000 --headless
"""

from locust import LoadTestShape

from loadgen.measure.metrics import TTFT
from loadgen.observe.live import within
from loadgen.replay.plugin import Agent
from loadgen.replay.scenario import workload

LIMIT_S, SHARE, STEP, STEP_S, MOST = (
    8.0,
    0.90,
    2,
    60.0,
    64,
)  # wall seconds a step; the limit is in endpoint seconds

workload("capacity.toml")


class CapacityAgent(Agent):
    """A live session."""


class UntilTooSlow(LoadTestShape):
    """Steps of STEP sessions. Each is judged by its own turns, and the last one that held is the answer."""

    step, held, before = 1, 0, None

    def tick(self):
        if self.get_run_time() < self.step * STEP_S:
            return self.step * STEP, 100
        now = self.runner.environment.loadgen.master.merged().get(TTFT, "reuse")
        late, turns = now.n - within(now, LIMIT_S), now.n
        was_late, was_turns = self.before or (0, 0)
        self.before, share = (late, turns), 1 - (late - was_late) / max(1, turns - was_turns)
        print(
            f"{self.step * STEP} sessions: {share:.1%} of {turns - was_turns} later turns within {LIMIT_S} s"
        )
        if turns == was_turns or share < SHARE or (self.step + 1) * STEP > MOST:
            print(f"capacity: {self.held if share < SHARE else self.step * STEP} sessions")
            return None
        self.held, self.step = self.step * STEP, self.step + 1
        return self.step * STEP, 100
