"""Dealing work: exactly once, in order, whatever happens to workers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadgen.measure.sample import TurnClass
from loadgen.replay.fleet.allocator import Allocator, Grant, Sessions, Sweep
from loadgen.replay.job import Job, PlannedSession, PlannedTurn


def job_of(lengths: list[int], children: dict[int, int] | None = None) -> Job:
    def turn(index: int) -> PlannedTurn:
        return PlannedTurn(
            index=index,
            attempt=1,
            klass=TurnClass.FIRST,
            target_tokens=None,
            expected_reuse=None,
            output_tokens=1,
            gap_s=0.0,
            gap_kind="",
        )

    return Job(
        urls=["http://127.0.0.1:1"],
        model="m",
        api="chat",
        api_key_env="X",
        time_scale=1.0,
        trace="t",
        trace_sha256="",
        schedule={},
        answers="recorded",
        natural_output=False,
        seed=0,
        timeouts_s=(1.0, 1.0, 1.0),
        isolate=False,
        block_size=None,
        nonce_form="plain",
        nonce_seed="",
        sessions=[
            PlannedSession(
                id=f"s{i}", record=f"s{i}", turns=[turn(k) for k in range(n)], child=i in (children or {})
            )
            for i, n in enumerate(lengths)
        ],
    )


class Lanes:
    """Plays the part of all lanes: who waits, who holds what, what was granted in which order."""

    def __init__(self, allocator: Allocator, lanes: dict[str, str]) -> None:
        self.allocator = allocator
        self.worker_of = lanes
        self.holding: dict[str, Grant] = {}
        self.granted: list[tuple[str, Grant]] = []
        self.ended: set[str] = set()
        for lane, worker in lanes.items():
            allocator.ask(worker, lane)
        self.pump()

    def pump(self) -> None:
        for worker, lane, grant in list(self.allocator.pump()):
            assert self.worker_of[lane] == worker
            if grant.kind == "end":
                self.ended.add(lane)
            else:
                self.granted.append((worker, grant))
                self.holding[lane] = grant

    def finish(self, lane: str, *, cut: bool = False) -> None:
        grant = self.holding.pop(lane)
        self.allocator.started(grant.session)
        if isinstance(self.allocator, Sweep):
            self.allocator.turn_done(grant.session, cut=cut)
            if self.allocator.round_over:
                assert not self.holding, "the barrier opened while a turn was under way"
                self.allocator.open_round()
        else:
            assert isinstance(self.allocator, Sessions)
            self.allocator.session_done(grant.session, cut=cut)
        self.allocator.ask(self.worker_of[lane], lane)
        self.pump()

    def lose(self, worker: str) -> None:
        for lane in [lane for lane, w in self.worker_of.items() if w == worker]:
            self.holding.pop(lane, None)
            del self.worker_of[lane]
        assert isinstance(self.allocator, Sweep | Sessions)
        self.allocator.worker_lost(worker)
        if isinstance(self.allocator, Sweep) and self.allocator.round_over:
            self.allocator.open_round()
        self.pump()


def test_a_sweep_of_width_one_goes_round_by_round_in_order() -> None:
    lanes = Lanes(Sweep(job_of([2, 3, 2])), {"a": "w"})
    while lanes.holding:
        lanes.finish("a")
    assert [g.session for _, g in lanes.granted] == [0, 1, 2, 0, 1, 2, 1]
    assert lanes.ended == {"a"}
    assert lanes.allocator.finished


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    width=st.integers(1, 4),
    workers=st.integers(1, 3),
    lanes=st.integers(1, 6),
    data=st.data(),
)
def test_a_sweep_deals_every_turn_once_and_each_session_to_one_worker(
    lengths: list[int], width: int, workers: int, lanes: int, data: st.DataObject
) -> None:
    played = Lanes(Sweep(job_of(lengths), width=width), {f"l{i}": f"w{i % workers}" for i in range(lanes)})
    while played.holding:
        assert len(played.holding) <= width
        played.finish(data.draw(st.sampled_from(sorted(played.holding))))
    assert sorted(g.session for _, g in played.granted) == [
        s for s, n in enumerate(lengths) for _ in range(n)
    ]
    times = [
        sum(g.session == grant.session for _, g in played.granted[:i])
        for i, (_, grant) in enumerate(played.granted)
    ]
    assert times == sorted(times), "a round began before the one before had ended"
    owners: dict[int, set[str]] = {}
    for worker, grant in played.granted:
        owners.setdefault(grant.session, set()).add(worker)
    assert all(len(found) == 1 for found in owners.values())
    assert played.allocator.finished
    assert played.ended == set(played.worker_of)


@given(
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    sweep=st.booleans(),
    before=st.integers(0, 12),
    data=st.data(),
)
def test_a_lost_worker_takes_its_started_sessions_and_nothing_else(
    lengths: list[int], sweep: bool, before: int, data: st.DataObject
) -> None:
    job = job_of(lengths)
    allocator: Sweep | Sessions = Sweep(job, width=3) if sweep else Sessions(job)
    played = Lanes(allocator, {"a1": "A", "a2": "A", "b1": "B", "b2": "B"})
    for _ in range(before):
        if not played.holding:
            break
        played.finish(data.draw(st.sampled_from(sorted(played.holding))))
    # A turn that was granted and not yet begun is not lost with its worker.
    begun = {
        g.session
        for lane, g in played.holding.items()
        if lane.startswith("a") and data.draw(st.booleans(), label="began")
    }
    for session in begun:
        allocator.started(session)
    started = {
        i
        for i, state in enumerate(allocator.states)
        if state.started and state.owner == "A" and not state.done
    }
    played.lose("A")
    while played.holding:
        played.finish(data.draw(st.sampled_from(sorted(played.holding))))
    assert {f"s{i}" for i in started} == set(allocator.lost_sessions)
    assert all(state.done != state.lost for state in allocator.states)
    assert allocator.finished
    assert allocator.in_flight == 0


def test_a_cut_session_gets_no_more_turns_and_is_reported() -> None:
    lanes = Lanes(Sweep(job_of([3, 3])), {"a": "w"})
    lanes.finish("a", cut=True)
    while lanes.holding:
        lanes.finish("a")
    assert [g.session for _, g in lanes.granted] == [0, 1, 1, 1]
    assert [state.cut for state in lanes.allocator.states] == [True, False]


def test_children_are_not_dealt_by_themselves() -> None:
    lanes = Lanes(Sessions(job_of([1, 1, 1], children={1: 0})), {"a": "w"})
    while lanes.holding:
        lanes.finish("a")
    assert [g.session for _, g in lanes.granted] == [0, 2]


def test_a_drained_allocator_ends_every_lane() -> None:
    lanes = Lanes(Sweep(job_of([2, 2])), {"a": "w", "b": "w"})
    lanes.allocator.drain()
    lanes.pump()
    assert lanes.ended == {"b"}
    lanes.finish("a")
    assert lanes.ended == {"a", "b"}
