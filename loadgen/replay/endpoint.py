"""What an endpoint is, asked before any load: its models, its time scale, its tokens.

Plain `http.client`: this runs before gevent has anything to do, in the CLI's process or in Locust's (where gevent's
patched sockets serve it just as well). Nothing here is on the measured path.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import ssl
from dataclasses import dataclass
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.replay.wire.target import Target

SCALE_HEADER = "x-loadgen-time-scale"
SIMULATED_HEADER = "x-loadgen-simulated"


@dataclass
class Api:
    """An endpoint and how to ask it."""

    target: Target
    key: str | None = None
    timeout_s: float = 120.0
    scheme: str = "Bearer"
    tls: ssl.SSLContext | None = None
    proxy: Target | None = None

    @property
    def url(self) -> str:
        return self.target.url

    @property
    def local(self) -> bool:
        """Whether the host is this machine or a private network: somebody's own hardware."""
        host = self.target.host
        if (
            host == "localhost"
            or host.endswith((".local", ".internal", ".svc", ".cluster.local"))
            or ("." not in host and ":" not in host)
        ):
            return True
        try:
            return ipaddress.ip_address(host).is_private
        except ValueError:
            return False

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
        """One request: status, headers (lower case), body. Raises InputError when the endpoint cannot be reached."""
        hop = self.proxy or self.target
        connection = (
            http.client.HTTPSConnection(hop.host, hop.port, timeout=self.timeout_s, context=self.tls)
            if self.target.tls
            else http.client.HTTPConnection(hop.host, hop.port, timeout=self.timeout_s)
        )
        where = self.target.path(path)
        if self.proxy and self.target.tls:
            connection.set_tunnel(self.target.host, self.target.port)
        elif self.proxy:
            where = self.target.origin + where
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"{self.scheme} {self.key}"
        data = None
        if body is not None:
            data = orjson.dumps(body)
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, where, data, headers)
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        except TimeoutError:
            raise InputError(
                f"{self.url} did not answer {path} within {self.timeout_s:g} s; is the server up and not stuck?"
            ) from None
        except ssl.SSLError as error:
            raise InputError(
                f"{self.url}: TLS failed ({error.reason or error}); check the scheme and the certificate"
            ) from None
        except (OSError, http.client.HTTPException) as error:
            raise InputError(
                f"{self.url} cannot be reached ({error or type(error).__name__}); is the server running there?"
            ) from None
        finally:
            connection.close()

    def json(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], Any]:
        """Like `request`, with the body decoded (None when it is not JSON)."""
        status, headers, data = self.request(method, path, body)
        try:
            return status, headers, orjson.loads(data)
        except orjson.JSONDecodeError:
            return status, headers, None


@dataclass
class Facts:
    """What an endpoint said of itself. `version` and `metrics` are None where it has no such page."""

    model: str
    max_model_len: int | None
    time_scale: float
    simulated: str | None
    version: str | None
    metrics: str | None
    models_json: Any = None


def api_key(variable: str) -> str | None:
    return os.environ.get(variable) or None


def discover(api: Api, wanted: str | None) -> Facts:
    """Ask `/v1/models`, `/version` and `/metrics`. Raises InputError when the endpoint is down, refuses, or does not serve `wanted`."""
    status, headers, body = api.json("GET", "/v1/models")
    if status in (401, 403):
        raise InputError(
            f"{api.url} refuses the key (HTTP {status}); set it in the variable that --api-key-env names"
        )
    models = body.get("data") if isinstance(body, dict) else None
    if status != 200 or not isinstance(models, list):
        raise InputError(
            f"{api.url}/v1/models answered HTTP {status} and no model list; is this an OpenAI-compatible endpoint?"
        )
    models = [item for item in models if isinstance(item, dict) and isinstance(item.get("id"), str)]
    names = [item["id"] for item in models]
    if wanted is None:
        if len(names) != 1:
            raise InputError(
                f"{api.url} serves {len(names)} models ({', '.join(names[:8])}); choose one with --model"
            )
        wanted = names[0]
    elif wanted not in names:
        raise InputError(
            f"{api.url} does not serve the model {wanted!r}; it serves {', '.join(names[:8]) or 'none'}"
        )
    entry = models[names.index(wanted)]
    try:
        scale = float(headers.get(SCALE_HEADER, "1"))
    except ValueError:
        raise InputError(
            f"{api.url} announces the time scale {headers[SCALE_HEADER]!r}, which is no number"
        ) from None
    if not 0.001 <= scale <= 1000:
        raise InputError(f"{api.url} announces the time scale {scale:g}; from 0.001 to 1000 is possible")
    version_status, _, version = api.json("GET", "/version")
    metrics_status, _, metrics = api.request("GET", "/metrics")
    length = entry.get("max_model_len")
    if length is None and isinstance(meta := entry.get("meta"), dict):
        length = meta.get("n_ctx")  # llama.cpp: of one slot
    return Facts(
        model=wanted,
        max_model_len=length if isinstance(length, int) else None,
        time_scale=scale,
        simulated=headers.get(SIMULATED_HEADER),
        version=str(version["version"])
        if version_status == 200 and isinstance(version, dict) and "version" in version
        else None,
        metrics=metrics.decode("utf-8", "replace") if metrics_status == 200 else None,
        models_json=body,
    )
