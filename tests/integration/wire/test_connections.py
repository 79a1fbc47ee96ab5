"""Connections: reuse, closing, cancelling, TLS, headers and clocks, over real sockets."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from test_faults import check_healthy
from wire_faults import HEAD, FaultServer, chunk, delta, healthy, plain, tail

from loadgen.measure.sample import ErrorClass


def test_a_connection_is_kept_and_its_connect_time_told_once(driver: Any, server: FaultServer) -> None:
    results = driver.run(server.url, *[[{"connection": "a"}]] * 3)
    for result in results:
        check_healthy(result)
    assert [r["reused_conn"] for r in results] == [False, True, True]
    assert results[0]["connect_ns"] > 0
    assert [r["connect_ns"] for r in results[1:]] == [None, None]
    assert server.connections == 1


def test_a_connection_that_closed_while_idle_is_opened_anew_before_the_request(
    driver: Any, server: FaultServer
) -> None:
    server.scripts["then-close"] = [*healthy(), 0.05, "close"]
    first, _, second = driver.run(
        server.url, [{"connection": "a", "script": "then-close"}], [{"sleep_s": 0.2}], [{"connection": "a"}]
    )
    check_healthy(first)
    check_healthy(second)
    assert (second["reused_conn"], second["stale"]) == (False, False)
    assert [h["x-script"] for h, _ in server.seen] == ["then-close", "healthy"]


def test_a_connection_that_the_server_may_be_about_to_close_is_opened_anew(
    driver: Any, server: FaultServer
) -> None:
    first, _, second = driver.run(
        server.url, [{"connection": "a"}], [{"sleep_s": 0.1}], [{"connection": "a"}], idle_s=0.05
    )
    check_healthy(first)
    check_healthy(second)
    assert second["reused_conn"] is False
    assert second["send_ns"] >= first["end_ns"] + second["connect_ns"], "connecting is no part of TTFT"
    assert server.connections == 2


def test_a_busy_loop_sees_the_close_too(driver: Any, server: FaultServer) -> None:
    server.scripts["then-close"] = [*healthy(), 0.05, "close"]
    first, _, second = driver.run(
        server.url, [{"connection": "a", "script": "then-close"}], [{"spin_s": 0.2}], [{"connection": "a"}]
    )
    check_healthy(first)
    check_healthy(second)


def test_a_close_under_the_request_is_one_failed_attempt_that_says_so(
    driver: Any, server: FaultServer
) -> None:
    server.scripts["slam"] = ["close"]
    first, second, third = driver.run(
        server.url, [{"connection": "a"}], [{"connection": "a", "script": "slam"}], [{"connection": "a"}]
    )
    check_healthy(first)
    assert (second["error"], second["stale"], second["reused_conn"]) == (ErrorClass.RESET, True, True)
    check_healthy(third)
    assert third["reused_conn"] is False
    assert [h["x-script"] for h, _ in server.seen].count(
        "slam"
    ) == 1  # nothing was retried behind the caller's back


def test_a_server_that_restarts_fails_only_what_was_under_way(driver: Any, server: FaultServer) -> None:
    server.scripts["dies"] = [HEAD, chunk(delta(content="a")), 0.05, "reset"]
    results = driver.run(
        server.url,
        [{"connection": "a"}, {"connection": "b", "script": "dies"}],
        [{"connection": "a"}, {"connection": "b"}],
    )
    assert [r["error"] for r in results] == [None, ErrorClass.RESET, None, None]


def test_resets_under_load_cost_no_other_stream(driver: Any, server: FaultServer) -> None:
    server.scripts["dies"] = [HEAD, chunk(delta(content="a")), 0.03, "reset"]
    server.scripts["long"] = healthy(tokens=20)
    turns = [{"script": "long"}, {"script": "dies"}] * 15
    for turn, result in zip(turns, driver.run(server.url, turns), strict=True):
        if turn["script"] == "long":
            check_healthy(result, tokens=20)
        else:
            assert (result["error"], result["chunks"]) == (ErrorClass.RESET, 1)


def test_nobody_listens(driver: Any, server: FaultServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused, other = driver.run(server.url, [{"url": f"http://127.0.0.1:{port}"}, {}])
    assert (refused["error"], refused["send_ns"]) == (ErrorClass.CONNECT, 0)
    assert "refused" in refused["message"]
    check_healthy(other)


def test_a_name_that_does_not_exist(driver: Any, server: FaultServer) -> None:
    unknown, other = driver.run(server.url, [{"url": "http://does-not-exist.invalid"}, {}])
    assert unknown["error"] == ErrorClass.CONNECT
    assert "cannot resolve does-not-exist.invalid" in unknown["message"]
    check_healthy(other)


def test_a_connect_that_hangs_times_out(driver: Any) -> None:
    with socket.socket() as full:  # a backlog of one that nobody accepts from
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        (hung,) = driver.run(f"http://127.0.0.1:{port}", [{}], connect_timeout_s=0.3)
        for filler in fillers:
            filler.close()
    assert hung["error"] == ErrorClass.CONNECT
    assert "no connection within 0.3 s" in hung["message"]


@pytest.mark.parametrize("when", ["before the first token", "in mid-stream"])
def test_abort_closes_the_stream_and_the_server_notices(driver: Any, server: FaultServer, when: str) -> None:
    server.scripts["long"] = [HEAD, *([chunk(delta(content="a"))] if when == "in mid-stream" else []), "hang"]
    aborted, other, after = driver.run(
        server.url, [{"connection": "a", "script": "long", "abort_after_s": 0.2}, {}], [{"connection": "a"}]
    )
    assert (aborted["error"], aborted["message"]) == (ErrorClass.CANCELLED, "cancelled by the client")
    assert aborted["chunks"] == (1 if when == "in mid-stream" else 0)
    assert server.aborted == ["long"]
    check_healthy(other)
    check_healthy(after)


def test_a_killed_greenlet_closes_its_connection(driver: Any, server: FaultServer) -> None:
    server.scripts["long"] = [HEAD, chunk(delta(content="a")), "hang"]
    killed, other, after = driver.run(
        server.url, [{"connection": "a", "script": "long", "kill_after_s": 0.2}, {}], [{"connection": "a"}]
    )
    assert "GreenletExit" in killed["raised"]
    assert server.aborted == ["long"]
    check_healthy(other)
    check_healthy(after)


BUSY = {"sleep_s": 0.05, "spin_s": 0.4}  # begins after the request is out, ends long after the token came


def test_a_late_reader_still_knows_when_the_token_came(driver: Any, server: FaultServer) -> None:
    server.scripts["slow"] = [HEAD, 0.1, chunk(delta(content="a")), 3.0, chunk(delta(content="b")), tail(2)]
    result, _ = driver.run(server.url, [{"script": "slow"}, BUSY])
    assert (result["error"], result["clock"], result["coalesced"]) == (None, "kernel", False)
    assert (
        result["first_token_ns"] - result["send_ns"]
    ) / 1e6 > 95  # before the next token, whatever this machine does
    assert result["lag_ns"] > 150_000_000
    assert result["max_gap_ns"] > 400_000_000


def test_a_reader_later_than_the_next_token_says_coalesced(driver: Any, server: FaultServer) -> None:
    server.scripts["two"] = [HEAD, 0.1, chunk(delta(content="a")), 0.05, chunk(delta(content="b")), 0.6]
    server.scripts["two"] += [chunk(delta(content="c")), tail(3)]
    late, _ = driver.run(server.url, [{"script": "two"}, BUSY])
    assert (late["error"], late["coalesced"], late["burst"]) == (None, True, False)


def test_all_tokens_in_one_read_are_a_burst(driver: Any, server: FaultServer) -> None:
    server.scripts["burst"] = [
        HEAD,
        0.05,
        chunk(delta(content="a")) + chunk(delta(content="b")),
        0.1,
        tail(2),
    ]
    (result,) = driver.run(server.url, [{"script": "burst"}])
    assert (result["coalesced"], result["burst"], result["max_gap_ns"]) == (True, True, None)


def test_without_kernel_stamps_the_clock_is_the_loop(driver: Any, server: FaultServer) -> None:
    (result,) = driver.run(server.url, [{}], kernel_stamps=False)
    check_healthy(result)
    assert (result["clock"], result["lag_ns"]) == ("loop", 0)


def test_a_large_body_arrives_whole(driver: Any, server: FaultServer) -> None:
    (result,) = driver.run(server.url, [{"bytes": 5_000_000}])
    check_healthy(result)
    headers, body = server.seen[0]
    assert int(headers["content-length"]) == len(body)
    assert json.loads(body)["messages"] == [{"role": "user", "content": "x" * 5_000_000}]


def test_an_upload_that_our_own_loop_held_up_says_so(driver: Any, server: FaultServer) -> None:
    upload = {"connection": "a", "bytes": 8_000_000}
    _, held, _ = driver.run(server.url, [{"connection": "a"}], [upload, {"work_s": 0.3}])
    check_healthy(held)
    assert held["client_delay_ns"] > 200_000_000
    assert held["client_delay_ns"] <= held["sent_ns"] - held["send_ns"]


def test_an_upload_that_the_server_held_up_is_not_blamed_on_the_client(
    driver: Any, server: FaultServer
) -> None:
    server.read_delay_s = 0.3
    (held,) = driver.run(server.url, [{"bytes": 20_000_000}])
    check_healthy(held)
    assert held["sent_ns"] - held["send_ns"] > 250_000_000
    assert held["client_delay_ns"] < 100_000_000


def test_headers(driver: Any, server: FaultServer) -> None:
    server.scripts["denied"] = [plain("401 Unauthorized", b'{"error":{"message":"key s3cr3t is unknown"}}')]
    turn = {"headers": [["X-Request-Id", "r-1"], ["X-Session", "s"]]}
    good, denied = driver.run(
        server.url,
        [turn],
        [{"script": "denied"}],
        headers=[["Authorization", "BackendAI s3cr3t"], ["X-Team", "kv"]],
    )
    check_healthy(good)
    headers = server.seen[0][0]
    assert headers[":request"] == "POST /v1/chat/completions HTTP/1.1"
    expected = {"authorization": "BackendAI s3cr3t", "x-team": "kv", "x-request-id": "r-1", "x-session": "s"}
    assert headers | expected == headers
    assert headers["accept-encoding"] == "identity"
    assert headers["host"] == f"localhost:{server.port}"
    assert "s3cr3t" not in denied["message"]
    assert denied["error"] == ErrorClass.HTTP_4XX


def test_a_header_that_would_end_its_line_is_refused(driver: Any, server: FaultServer) -> None:
    (result,) = driver.run(server.url, [{"headers": [["X-A", "b\r\nX-Evil: 1"]]}])
    assert "ValueError" in result["raised"]
    assert server.seen == []


def test_tls_has_kernel_stamps_and_carries_large_bodies(
    driver: Any, tls_server: FaultServer, certificate: tuple[Path, Path]
) -> None:
    tls_server.scripts["cut"] = [HEAD, chunk(delta(content="a")), 0.05, "close"]
    results = driver.run(
        tls_server.url,
        [{"connection": "a", "bytes": 3_000_000}, {"connection": "b"}],
        [{"connection": "a"}, {"connection": "b", "script": "cut"}],
        ca=str(certificate[0]),
    )
    for result in results[:3]:
        check_healthy(result)
        assert result["clock"] == "kernel"
    assert results[2]["reused_conn"] is True
    assert results[3]["error"] in (ErrorClass.TRUNCATED, ErrorClass.RESET)
    assert (
        json.loads(max((b for _, b in tls_server.seen), key=len))["messages"][0]["content"] == "x" * 3_000_000
    )


def test_tls_refuses_a_certificate_that_nobody_vouches_for(driver: Any, tls_server: FaultServer) -> None:
    (result,) = driver.run(tls_server.url, [{}])
    assert (result["error"], result["send_ns"]) == (ErrorClass.CONNECT, 0)
    assert "certificate" in result["message"].lower()


def test_tls_towards_a_plain_server(driver: Any, server: FaultServer) -> None:
    (result,) = driver.run(server.url.replace("http:", "https:"), [{}], connect_timeout_s=1.0)
    assert result["error"] == ErrorClass.CONNECT
