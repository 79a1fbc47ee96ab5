"""A small experiment, made without a file."""

from __future__ import annotations

from loadgen.experiment.spec import Arm, Cell, Experiment, Spec


def experiment(arms: int = 2, runs: int = 6, cells: int = 1, seed: int = 0) -> Experiment:
    spec = Spec(name="e", arms=[Arm(name=f"a{n}", host="h") for n in range(arms)], runs=runs, seed=seed)
    return Experiment(
        spec=spec, sha256="", cells=[Cell(name=f"c{n}", values={}) for n in range(cells)], primary="c0"
    )
