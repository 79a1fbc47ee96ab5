"""A profile from samples that the engine itself made: the coefficients come back, and so does the error of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen import cli
from loadgen.errors import InputError
from loadgen.measure.journal import SampleWriter
from loadgen.measure.run import Endpoint, Plan, RunInfo, write_run
from loadgen.measure.sample import Sample, Tiers, TurnClass
from loadgen.sim import profile as profiles
from loadgen.sim.engine import Engine
from loadgen.sim.fit import Runs, fit, to_toml
from loadgen.sim.request import Request
from loadgen.sim.streams import Stream

KV = 131_072
LENGTHS = (8_000, 20_000, 50_000, 90_000, 140_000)


def record(
    folder: Path,
    arm: str,
    lengths: tuple[int, ...] = LENGTHS,
    rounds: int = 2,
    overlap: bool = False,
    slow: float = 1.0,
    scale: float = 1.0,
) -> Path:
    """A run folder as a sweep over contexts of these lengths would leave it, measured on the h200 profile's engine."""
    folder.mkdir()
    engine = Engine(profiles.load("h200"), arm)
    endpoint = Endpoint(
        url="http://x",
        model="m8b",
        max_model_len=163_840,
        server={"capacity_tokens": 352_288},
        time_scale=scale,
    )
    info = RunInfo(
        run=folder.name,
        arm=arm,
        created="2026-01-01T00:00:00Z",
        endpoint=endpoint,
        plan=Plan(sessions=len(lengths), turns=rounds),
    )
    write_run(folder, info)
    writer = SampleWriter(folder / "samples-0.jsonl")
    streams = [Stream() for _ in lengths]
    ns = lambda seconds: round(seconds * slow / scale * 1e9)  # noqa: E731
    for turn in range(rounds):
        batch = []
        for at, (length, stream) in enumerate(zip(lengths, streams, strict=True)):
            sent_s = engine.now_s + (0.2 * len(batch) if overlap else 0.3)
            prompt = length + 512 * turn
            request = Request(
                stream,
                prompt,
                16,
                ready_s=sent_s + engine.cost.host(prompt),
                full=Stream(stream, prompt),
                owner=(at, sent_s),
            )
            engine.submit(request)
            batch.append(request)
            if not overlap or at == len(lengths) - 1:
                while any(r.state != "finished" for r in batch):
                    engine.step(leap=True)
                for r in batch:
                    number, sent = r.owner
                    writer.write(
                        Sample(
                            run=folder.name, arm=arm, rep=0, session=f"s{number}", turn=turn, klass=TurnClass.REUSE if turn else TurnClass.FIRST,
                            worker="0", endpoint="http://x", request_id=f"{number}.{turn}", intended_ns=ns(sent), send_ns=ns(sent),
                            first_token_ns=ns(r.first_token_s), last_token_ns=ns(r.finish_s), end_ns=ns(r.finish_s), clock="kernel",
                            prompt_tokens=r.prompt, expected_reuse=lengths[number] + 512 * (turn - 1) if turn else 0, cached_tokens=r.cached,
                            output_tokens=16, first_event_tokens=1, tiers=Tiers(compute=r.prompt - r.cached, hbm=r.hbm, external=r.external), tier_source="isolated",
                        )
                    )  # fmt: skip
                batch = []
    writer.close()
    return folder


def test_the_coefficients_come_back(tmp_path: Path) -> None:
    runs = Runs(
        [record(tmp_path / "off", "off"), record(tmp_path / "cpu", "lmcache-cpu", (*LENGTHS, 120_000))]
    )
    fitted = fit(runs, "again", KV)
    truth, found = profiles.load("h200"), fitted.profile
    assert found.compute.prefill_s_per_token2 == pytest.approx(truth.compute.prefill_s_per_token2, rel=0.03)
    # computing and hashing a token can be told apart only by long hits; together they are known
    per_token = found.compute.prefill_s_per_token + found.compute.host_s_per_token
    assert per_token == pytest.approx(2.15e-5, rel=0.1)
    assert found.arms["offload"].tiers[0].read_gb_s == pytest.approx(65.0, rel=0.1)
    assert found.arms["offload"].tiers[0].store_s_per_token == pytest.approx(6.3e-6, rel=0.1)
    assert found.compute.decode_s == pytest.approx(0.025, rel=0.2)
    lengths = [error for error in fitted.errors if error.held_out.startswith("cold length")]
    assert len(lengths) >= 4
    assert all(abs(error.worst) < 0.08 for error in lengths)
    assert [error.held_out for error in fitted.errors if error.held_out.startswith("N")] == ["N = 5 (off)"]
    assert any("concurrency" in reason for reason in fitted.untested)


def test_held_out_numbers_of_sessions_and_overlapping_turns_are_predicted(tmp_path: Path) -> None:
    runs = Runs([
        record(tmp_path / "five", "off"),
        record(tmp_path / "four", "off", LENGTHS[:4], rounds=3),
        record(tmp_path / "busy", "off", (30_000, 60_000, 10_000), overlap=True),
    ])  # fmt: skip
    errors = {error.held_out: error for error in fit(runs, "x", KV).errors}
    assert abs(errors["N = 5 (five)"].mean) < 0.05
    assert abs(errors["N = 4 (four)"].mean) < 0.05
    overlap = errors["turns that overlap (busy)"]
    assert overlap.turns == 6
    assert abs(overlap.mean) < 0.05


def test_a_run_of_a_slower_machine_shows_as_error(tmp_path: Path) -> None:
    runs = Runs([record(tmp_path / "five", "off"), record(tmp_path / "slow", "off", LENGTHS[:4], slow=1.3)])
    errors = {error.held_out: error for error in fit(runs, "x", KV).errors}
    assert errors["N = 4 (slow)"].mean == pytest.approx(1 / 1.3 - 1, abs=0.05)


def test_simulated_time_is_endpoint_time(tmp_path: Path) -> None:
    slow, fast = (
        fit(Runs([record(tmp_path / f"x{scale}", "off", scale=scale)]), "x", KV) for scale in (1.0, 20.0)
    )
    assert fast.profile.compute.prefill_s_per_token2 == pytest.approx(
        slow.profile.compute.prefill_s_per_token2, rel=1e-3
    )


def test_three_lengths_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"at least 4 prompt lengths .* the runs have 3 \(8,000, 20,000, 50,000 tokens\)"
    ):
        fit(Runs([record(tmp_path / "few", "off", LENGTHS[:3], rounds=1)]), "x", KV)


def test_the_file_is_a_profile(tmp_path: Path) -> None:
    fitted = fit(
        Runs([record(tmp_path / "off", "off"), record(tmp_path / "cpu", "lmcache-cpu", (*LENGTHS, 120_000))]),
        'odd "name"\\',
        KV,
    )
    path = tmp_path / "profile.toml"
    path.write_text(to_toml(fitted.profile))
    assert profiles.load(str(path)) == fitted.profile


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(record(tmp_path / "off", "off"))
    out = tmp_path / "made.toml"
    assert cli.main(["sim", "fit", run, "--kv-of", "llama-3.1-8b", "-o", str(out)]) == 0
    for taken in (Path(run, "run.json"), tmp_path / "none" / "p.toml", tmp_path):
        assert cli.main(["sim", "fit", run, "--kv-of", "llama-3.1-8b", "-o", str(taken)]) == 2
    assert not (tmp_path / "none").exists()
    assert "held out cold length" in capsys.readouterr().out
    assert profiles.load(str(out)).kv_bytes_per_token == KV
    (tmp_path / "run.log").write_text("")
    for bad in (
        [str(tmp_path / "run.log"), "--kv-of", "llama-3.1-8b"],
        [run],
        [run, "--kv-of", "nope"],
        [str(tmp_path), "--kv-of", "llama-3.1-8b"],
        [run, "--kv-of", "llama-3.1-8b", "-o", "/proc/x"],
    ):
        assert cli.main(["sim", "fit", *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
