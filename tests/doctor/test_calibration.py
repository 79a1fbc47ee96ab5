"""Calibration on a server whose times are known: the curve and the taxes come out as they were put in."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loadgen.doctor.ask import Asked
from loadgen.doctor.checks import calibration
from loadgen.doctor.checks.tier import Controls, Shot
from loadgen.doctor.finding import Status
from loadgen.doctor.patient import Patient
from loadgen.measure.sample import Tiers
from loadgen.replay.endpoint import Api, Facts
from loadgen.replay.rendering import Renderer
from loadgen.replay.wire.exchange import Exchange, Usage
from loadgen.replay.wire.target import Target

T0, A, B = 0.05, 7e-5, 6e-10
CONFIG, STORE, BACKLOG = 0.02, 0.2, 0.5


class Machine:
    """Answers every probe with the time that its formula gives; knows what was stored and not yet drained."""

    def __init__(self, noise: float = 0.0, honours_skip_save: bool = True) -> None:
        self.dice, self.noise, self.honours = random.Random(1), noise, honours_skip_save
        self.pending = 0
        self.hosts: list[str] = []

    def shoot(self, patient: Patient, prompt: str, extra: dict[str, Any] | None = None) -> Shot:
        tokens = len(prompt.split())
        self.hosts.append(patient.api.url)
        seconds = T0 + A * tokens + B * tokens**2
        skip = self.honours and "lmcache.skip_save" in ((extra or {}).get("kv_transfer_params") or {})
        if patient.api.target.port != 2:
            seconds += CONFIG
            if not skip:
                seconds += STORE + (BACKLOG if self.pending else 0)
                self.pending += 1
        seconds *= 1 + self.dice.gauss(0, self.noise)
        exchange = Exchange(send_ns=1, usage=Usage(prompt_tokens=tokens, cached_tokens=0, output_tokens=2))
        return Shot(Asked(exchange), Tiers(compute=tokens), seconds)

    def quiet(self, patient: Patient, wait_s: float = 0.0) -> None:
        self.pending = 0


def patient(port: int = 1) -> Patient:
    api = Api(Target.parse(f"127.0.0.1:{port}"), None)
    renderer = Renderer.__new__(Renderer)  # nothing here renders
    facts = Facts(
        model="m", max_model_len=200_000, time_scale=1.0, simulated=None, version=None, metrics=None
    )
    return Patient(api=api, facts=facts, renderer=renderer, probe_tokens=4000)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(calibration, "shoot", made.shoot)
    monkeypatch.setattr(calibration, "quiet", made.quiet)
    return made


def test_the_curve_is_found_without_writes(machine: Machine) -> None:
    (found,) = calibration.cold_curve(patient(), Controls(alive=True, skip_save=True), 32_000)
    assert found.status is Status.OK
    assert found.data["t0_s"] == pytest.approx(T0 + CONFIG, abs=0.02)
    assert found.data["a"] == pytest.approx(A, rel=0.1)
    assert found.data["b"] == pytest.approx(B, rel=0.1)
    assert found.data["writes"] is False
    assert [point["tokens"] for point in found.data["points"]] == sorted(
        {p["tokens"] for p in found.data["points"]}
    )
    assert len(found.data["points"]) == 4


def test_where_writes_cannot_be_left_out_the_curve_says_so(machine: Machine) -> None:
    (found,) = calibration.cold_curve(patient(), Controls(alive=True, skip_save=False), 32_000)
    assert found.data["writes"] is True
    assert "writes included" in found.meaning
    assert found.data["t0_s"] > T0 + CONFIG + STORE * 0.8


def test_the_three_taxes_are_told_apart(machine: Machine) -> None:
    machine.noise = 0.01
    found = {
        f.check: f
        for f in calibration.write_taxes(patient(), Controls(alive=True, skip_save=True), patient(port=2))
    }
    for name, tax in (("config", CONFIG), ("store", STORE), ("backlog", BACKLOG)):
        data = found[f"write tax, {name}"].data
        assert data["tax_s"] == pytest.approx(tax, abs=0.02)
        assert data["low_s"] <= tax <= data["high_s"]
    assert machine.hosts.count("http://127.0.0.1:2") == 6
    assert len(machine.hosts) == 30


def test_without_an_off_host_the_config_tax_is_skipped_and_without_skip_save_all_are(
    machine: Machine,
) -> None:
    found = {
        f.check: f for f in calibration.write_taxes(patient(), Controls(alive=True, skip_save=True), None)
    }
    assert found["write tax, config"].status is Status.SKIP
    assert found["write tax, store"].data["tax_s"] == pytest.approx(STORE)
    (only,) = calibration.write_taxes(patient(), Controls(alive=True, skip_save=None), None)
    assert only.status is Status.SKIP


def test_equal_times_show_no_tax() -> None:
    assert calibration.difference_of_means([1.0, 1.0], [1.0, 1.0]) == (0.0, 0.0, 0.0)
    tax, low, high = calibration.difference_of_means([1.0, 1.1, 0.9], [1.05, 1.0, 1.1])
    assert low < 0 < high
    assert tax == pytest.approx(0.05)
