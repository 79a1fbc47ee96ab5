"""What must stand on every form of a result: that it is simulated."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.measure.run import RunInfo


def simulated(infos: Sequence[RunInfo]) -> str:
    """The sentence that marks simulated runs; empty when none is."""
    marks = [
        f"{info.endpoint.simulated or 'unnamed profile'} at {info.endpoint.time_scale:g}× real time"
        for info in infos
        if info.endpoint.simulated or info.endpoint.time_scale != 1
    ]
    if not marks:
        return ""
    return f"SIMULATED ({', '.join(dict.fromkeys(marks))}): the profile's numbers in the simulated machine's seconds, not evidence."
