"""The measured H200: hit tokens exact, TTFT within 10 % (docs/simulator.md has the table)."""

from __future__ import annotations

import pytest

from loadgen.sim import profile as profiles
from loadgen.sim.engine import Engine
from loadgen.sim.request import Request
from loadgen.sim.streams import Stream

CONTEXT = 140_000
PAUSE_S = 1.0  # between two requests of the probe, read off LMCache's log


def play(
    engine: Engine, stream: Stream, prompt: int = CONTEXT, output: int = 16, **more: object
) -> tuple[float, Request]:
    sent_s = engine.now_s + PAUSE_S
    request = Request(stream, prompt, output, ready_s=sent_s + engine.cost.host(prompt), **more)  # type: ignore[arg-type]
    engine.submit(request)
    while request.state != "finished":
        engine.step(leap=True)
    return request.first_token_s - sent_s, request


@pytest.mark.parametrize(
    ("arm", "first_s", "later_s", "hbm", "external"),
    [
        ("off", (11.606, 11.516, 11.571), (7.825, 7.846, 7.821, 7.775, 7.807, 7.764), 72_256, 0),
        ("lmcache-cpu", (12.731, 12.347, 12.250), (0.395, 0.386, 0.414, 0.389, 0.399), 72_256, 67_520),
    ],
)
def test_round_robin_over_three_contexts(
    arm: str, first_s: tuple[float, ...], later_s: tuple[float, ...], hbm: int, external: int
) -> None:
    engine = Engine(profiles.load("h200"), arm)
    streams = [Stream() for _ in range(3)]
    for round_ in range(3):
        for stream in streams:
            seconds, request = play(engine, stream)
            assert (request.hbm, request.external) == ((hbm, external) if round_ else (0, 0))
            for measured_s in later_s if round_ else first_s:
                assert seconds == pytest.approx(measured_s, rel=0.1)


def test_the_probe_of_the_disk_arm_in_its_order() -> None:
    engine = Engine(profiles.load("h200"), "lmcache-disk")
    a, b = Stream(), Stream()

    def ask(
        measured_s: float, hbm: int, external: int, stream: Stream, prompt: int = CONTEXT, **more: object
    ) -> None:
        seconds, request = play(engine, stream, prompt, **more)
        assert (request.hbm, request.external) == (hbm, external)
        assert seconds == pytest.approx(measured_s, rel=0.1)

    for warmup in (2_000, 20_000):
        play(engine, Stream(), warmup)
    for prompt, measured_s in ((10_000, 0.377), (20_000, 0.736), (40_000, 1.858), (80_000, 5.139)):
        ask(measured_s, 0, 0, Stream(), prompt)
    ask(12.783, 0, 0, a)
    ask(0.244, 139_984, 0, a)
    ask(1.717, 0, 139_776, a, hbm_space="1")
    ask(1.654, 0, 139_776, a, hbm_space="2")
    ask(21.398, 0, 0, a, hbm_space="3", external_space="r1")
    ask(11.542, 0, 0, b, save=False)
    ask(23.637, 0, 0, b, hbm_space="4")
    ask(1.916, 0, 139_776, b, hbm_space="5")
    ask(28.461, 0, 0, a, 140_512, hbm_space="6")
