"""What one scheduler step costs on a profile's machine, in seconds. The only place with formulas of time.

Sources: T_cold(L) = T0 + a L + b L^2 with a = 2 N_active / (G P e1) and b = 2 layers heads head_dim /
(G P e2) (causal attention); decoding reads the weights once a step and every request's KV once.
"""

from __future__ import annotations

from loadgen.sim.profile import Compute


class Cost:
    """Bound coefficients of a profile; a chunk's cost telescopes, so that any chunking of a prompt adds up."""

    __slots__ = ("_a", "_b", "_decode", "_host", "_host_token", "_kv", "_request", "step_s")

    def __init__(self, compute: Compute) -> None:
        self._host = compute.host_s
        self._host_token = compute.host_s_per_token
        self._a = compute.prefill_s_per_token
        self._b = compute.prefill_s_per_token2
        self._decode = compute.decode_s
        self._request = compute.decode_s_per_request
        self._kv = compute.decode_s_per_kv_token
        self.step_s = compute.step_s

    def host(self, tokens: int) -> float:
        """Before the scheduler sees a prompt of `tokens`."""
        return self._host + self._host_token * tokens

    def prefill(self, done: int, end: int) -> float:
        """Computing tokens [done, end) behind `done` tokens of KV."""
        return self._a * (end - done) + self._b * (end * end - done * done)

    def decode(self, requests: int, kv_tokens: int) -> float:
        """One step that gives each of `requests` one token, reading `kv_tokens` in all."""
        return self._decode + self._request * requests + self._kv * kv_tokens

    def decode_run(self, requests: int, kv_tokens: int, steps: int) -> float:
        """`steps` such steps in a row: the KV grows by `requests` tokens a step."""
        return steps * self.decode(requests, kv_tokens) + self._kv * requests * (steps * (steps - 1) // 2)
