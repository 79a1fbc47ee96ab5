"""The steady part of a closed run: from the moment at which every lane has a session until one finds none to take.

Its rates leave out the start, in which lanes fill, and the end, in which they empty; those of the whole run do not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loadgen.measure.run import RunInfo
from loadgen.report.columns import ABSENT, Turns


def window(turns: Turns, info: RunInfo) -> tuple[int, int] | None:
    """(from, to) in wall nanoseconds; None for other schedules, resumed runs, and where lanes were never all busy.

    A run that ends after a time has no end recorded: its lanes were full until its last turn was sent.
    """
    if info.steady_from is None or info.resumed or not len(turns):
        return None
    begin = info.steady_from.wall_ns
    end = info.steady_to.wall_ns if info.steady_to is not None else int(turns.send_ns.max())
    return (begin, end) if end > begin else None


def steady(turns: Turns, info: RunInfo, origin_ns: int) -> dict[str, Any] | None:
    """Rates of the window, by the turns that ended well within it, their whole answers counted.

    `from_s` and `to_s` are endpoint seconds since `origin_ns`; `output_tokens_s` is null where an answer has no count.
    """
    found = window(turns, info)
    if found is None:
        return None
    begin, end = ((stamp - origin_ns) / 1e9 * info.endpoint.time_scale for stamp in found)
    inside = turns.ok & (turns.end_ns > found[0]) & (turns.end_ns <= found[1])
    count, output = int(np.count_nonzero(inside)), turns.output_tokens[inside & ~turns.aborted]
    return {
        "from_s": begin,
        "to_s": end,
        "turns": count,
        "turns_s": count / (end - begin),
        "output_tokens_s": None if (output == ABSENT).any() else int(output.sum()) / (end - begin),
    }
