"""Proxies: refused unless asked for, since one between client and server buffers streams and moves every stamp."""

from __future__ import annotations

from collections.abc import Mapping

from loadgen.errors import InputError
from loadgen.replay.wire.target import Target


def choose(target: Target, asked: str | None, environment: Mapping[str, str]) -> Target | None:
    """The proxy to reach `target` through: the one that was `asked` for, or none.

    Raises InputError when the environment names one that would apply and nobody asked: sending past it may fail,
    and sending through it would measure something else than the user thinks.
    """
    if asked is not None:
        proxy = Target.parse(asked)
        if proxy.tls or proxy.prefix:
            raise InputError(
                f"{asked!r} is not a proxy that can be used; give one like http://127.0.0.1:3128"
            )
        return proxy
    for name in (f"{target.scheme}_proxy", "all_proxy"):
        for spelled in (name, name.upper()):
            if environment.get(spelled) and not _bypassed(target, environment):
                raise InputError(
                    f"{spelled} is set, and a proxy changes what is measured: unset it, add {target.host} to NO_PROXY, "
                    f"or ask for the proxy with --proxy URL"
                )
    return None


def _bypassed(target: Target, environment: Mapping[str, str]) -> bool:
    """Whether the usual rules for NO_PROXY leave this host out. This machine is always left out."""
    if target.host in ("localhost", "::1") or target.host.startswith("127."):
        return True
    listed = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    names = [entry.strip().lstrip("*.").lower() for entry in listed.split(",") if entry.strip()]
    return any(
        name in ("", target.host, target.authority) or target.host.endswith(f".{name}") for name in names
    )
