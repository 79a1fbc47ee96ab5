from __future__ import annotations

import logging

import pytest
from locust import argument_parser

from loadgen.replay.fleet import spawning


def test_all_lanes_come_in_the_first_step() -> None:
    assert [spawning.rate(lanes) for lanes in (1, 100, 101, 1600)] == [100, 100, 101, 1600]


def test_the_advice_against_our_own_rate_is_left_out_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spawning.rate(1600)
    log = logging.getLogger("locust.runners")
    with caplog.at_level(logging.WARNING, "locust.runners"):
        log.warning("Your selected spawn rate is very high (>100/worker), and this is known to cause issues.")
        log.warning("Worker died")
    assert [record.getMessage() for record in caplog.records] == ["Worker died"]


def test_a_message_that_changes_users_builds_the_command_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(
        argument_parser,
        "get_empty_argument_parser",
        _counting(argument_parser.get_empty_argument_parser, built),
    )
    monkeypatch.setattr(argument_parser, "default_args_dict", _plain(argument_parser.default_args_dict))
    expected = argument_parser.default_args_dict()
    built.clear()
    spawning.quicken()
    spawning.quicken()  # a process may have several nodes
    given = {key: value for key, value in expected.items() if key in argument_parser.default_args_dict()}
    assert (given, len(built)) == (expected, 1)


def _counting(function, calls):  # type: ignore[no-untyped-def]
    def counted(*args, **kwargs):  # type: ignore[no-untyped-def]
        calls.append(args)
        return function(*args, **kwargs)

    return counted


def _plain(function):  # type: ignore[no-untyped-def]
    """As Locust has it, whatever an earlier test's node made of it."""
    return getattr(function, "__wrapped__", function)
