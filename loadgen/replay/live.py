"""How many sessions live at once, as the command line says it."""

from __future__ import annotations

import re

from loadgen.errors import InputError

Stage = tuple[int, float]
"""(live sessions, endpoint seconds)"""


def parse_stages(text: str) -> list[Stage]:
    """`4:60,8:60`: 4 live sessions for 60 s, then 8 for 60 s. Raises InputError."""
    stages: list[Stage] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+(?:\.\d+)?)\s*", part)
        if found is None or int(found[1]) < 1 or float(found[2]) <= 0:
            raise InputError(f"--stages {text!r} is not of the form SESSIONS:SECONDS,…, such as 4:60,8:60")
        stages.append((int(found[1]), float(found[2])))
    return stages
