"""The order of runs: blocks in which every arm runs once, in balanced random order."""

from __future__ import annotations

import random

import msgspec

from loadgen.experiment.spec import Experiment


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the plan. `rep` counts an arm's runs within a cell; `position` is its place within its block."""

    index: int
    cell: str
    arm: str
    rep: int
    position: int

    @property
    def folder(self) -> str:
        name = f"{self.arm}.r{self.rep:02d}"
        return f"{self.cell}/{name}" if self.cell else name


def order(experiment: Experiment) -> list[Step]:
    """The plan of an experiment; the same file gives the same plan.

    Cells take turns, in another random order each time, so that a drift of the machine meets all of them. Within a
    cell, blocks come in pairs, an order of the arms and its reverse, and the pairs' halves are dealt at random: each arm
    goes before each other equally often.
    """
    dice = random.Random(f"{experiment.spec.seed}:{experiment.spec.name}")
    arms = [arm.name for arm in experiment.spec.arms]
    blocks: dict[str, list[list[str]]] = {}
    for cell in experiment.cells:
        mine: list[list[str]] = []
        for _ in range(experiment.spec.runs // 2):
            forward = dice.sample(arms, len(arms))
            mine += [forward, forward[::-1]]
        dice.shuffle(mine)
        blocks[cell.name] = mine
    plan: list[Step] = []
    for rep in range(experiment.spec.runs):
        for name in dice.sample(sorted(blocks), len(blocks)):
            for position, arm in enumerate(blocks[name][rep]):
                plan.append(Step(index=len(plan), cell=name, arm=arm, rep=rep, position=position))
    return plan
