"""Locust patches the whole process that imports it, so what is tested of it here runs in one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

SCRIPT = """
import inspect, json, logging
from locust import argument_parser
from locust.env import Environment
from loadgen.replay.fleet import spawning

built = []
plain = argument_parser.get_empty_argument_parser

def counted(*args, **kwargs):
    built.append(1)
    return plain(*args, **kwargs)

argument_parser.get_empty_argument_parser = counted
expected = argument_parser.default_args_dict()
built.clear()
spawning.quicken()
spawning.quicken()  # a process may have several nodes
found = {key: value for key, value in expected.items() if key in argument_parser.default_args_dict()}

read = []
inspect.stack = lambda *args: read.append(1) or []
Environment(user_classes=[]).create_local_runner().stop()

said = []
log = logging.getLogger("locust.runners")
log.addHandler(type("Ears", (logging.Handler,), {"emit": lambda self, record: said.append(record.getMessage())})())
advice = "Your selected spawn rate is very high (>100/worker), and this is known to cause issues."
log.warning(advice)  # somebody's own rate
rates = [spawning.rate(lanes) for lanes in (1, 100, 101, 1600)]
log.warning(advice)
log.warning("Worker died")
print(json.dumps({"same": found == expected, "built": len(built), "read": len(read), "rates": rates, "said": [s.split()[0] for s in said]}))
"""


def _facts() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_lanes_come_at_once_and_cost_a_worker_one_command_line() -> None:
    facts = _facts()
    assert facts["rates"] == [100, 100, 101, 1600]
    assert facts["said"] == ["Your", "Worker"], (
        "the advice against our own rate is left out, and nothing else"
    )
    assert facts["same"]
    assert facts["built"] == 1, "Locust builds its command line once an argument"
    assert facts["read"] == 0, "Locust reads the source of its callers when it stops"
