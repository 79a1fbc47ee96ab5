"""Where requests go: one endpoint, parsed once from what the user typed."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from loadgen.errors import InputError

_DEFAULT_PORT = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint. `prefix` is the path in front of `/v1` (usually empty), without a slash at its end."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `URL`, `URL/v1` or `HOST:PORT`. Raises InputError for anything else, credentials included."""
        url = text.strip()
        if "://" not in url:
            url = f"http://{url}"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InputError(f"{text!r} is not the address of an endpoint: {error}") from None
        if (
            parts.scheme not in _DEFAULT_PORT
            or not host
            or any(c.isspace() or not c.isprintable() for c in url)
        ):
            raise InputError(
                f"{text!r} is not the address of an endpoint; give one like http://127.0.0.1:8000"
            )
        if parts.username is not None or parts.password is not None:
            raise InputError(
                "an endpoint's address must not hold credentials; put the key into OPENAI_API_KEY"
            )
        if parts.query or parts.fragment:
            raise InputError(f"{text!r} must end before '?' and '#'; give one like http://127.0.0.1:8000/v1")
        prefix = parts.path.rstrip("/")
        if prefix == "/v1" or prefix.endswith("/v1"):
            prefix = prefix[: -len("/v1")].rstrip("/")
        try:
            ascii_host = host if ":" in host else host.encode("idna").decode("ascii")
            prefix.encode("ascii")
        except UnicodeError:
            raise InputError(
                f"{text!r} is not the address of an endpoint; its host or path is not valid"
            ) from None
        return cls(parts.scheme, ascii_host, _DEFAULT_PORT[parts.scheme] if port is None else port, prefix)

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def host_header(self) -> str:
        """Value of the `Host` header; the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORT[self.scheme] else f"{host}:{self.port}"

    @property
    def authority(self) -> str:
        """Host and port, always both."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def origin(self) -> str:
        """The address without any path."""
        return f"{self.scheme}://{self.host_header}"

    @property
    def url(self) -> str:
        """Canonical address without `/v1`; holds no secret."""
        return self.origin + self.prefix

    def path(self, path: str) -> str:
        """Request path of `path` (`/v1/models`, `/metrics`) at this endpoint."""
        return self.prefix + path

    def __str__(self) -> str:
        return self.url
