"""A probe: is somebody else using the server? One more check of `loadgen doctor`.

To ship it: put the module into `loadgen/doctor/checks/` and a line with its `examine` into `examination.py`. A check yields
findings, each with what was seen, what that means and what to do; it raises nothing for what a server answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient

LOOKS, GAP_S = 5, 0.2


def examine(patient: Patient) -> Iterator[Finding]:
    """Look at the running and waiting requests a few times while we send none."""
    seen: list[float] = []
    for _ in range(LOOKS):
        _, _, body = patient.api.request("GET", "/metrics")
        page = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
        values = [
            sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name in ("vllm:num_requests_running", "vllm:num_requests_waiting")
        ]
        if not values:
            yield Finding(check="neighbours", status=Status.SKIP, seen="the server shows no running requests")
            return
        seen.append(sum(values))
        time.sleep(GAP_S)
    busy = sum(value > 0 for value in seen)
    yield Finding(
        check="neighbours",
        status=Status.WARN if busy else Status.OK,
        seen=f"requests under way in {busy} of {LOOKS} looks, {max(seen):.0f} at most",
        meaning="Others share the server: their prefills are in your TTFT and their KV pushes yours out."
        if busy
        else "",
        remedy="Run when the server is yours, or on a replica of its own." if busy else "",
        data={"requests": seen},
    )
