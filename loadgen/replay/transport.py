"""What every request of a run carries and how it gets there: credentials, extra headers, trust. Read from the environment of
the process that sends, so that no file of the run holds a secret."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterable

from loadgen.errors import InputError
from loadgen.replay.endpoint import api_key
from loadgen.replay.wire import headers


def request_headers(
    key_variable: str, scheme: str, api: str, extra: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """The key's headers and the extra ones, `$VAR` in their values read from the environment. Raises InputError."""
    expanded = [re.sub(r"\$(\w+)", _value, line) for line in extra]
    return (*headers.credentials(api_key(key_variable), scheme=scheme, api=api), *headers.parse(expanded))


def hide(lines: Iterable[str]) -> tuple[str, ...]:
    """The same headers with literal values moved into this process's environment, which its children inherit: what is a
    secret need not be told apart, no file of the run and no command line holds any value."""
    hidden = []
    for number, line in enumerate(lines):
        name, _, value = line.partition(":")
        if "$" not in value:
            variable = f"LOADGEN_HEADER_{number}"
            os.environ[variable] = value.strip()
            line = f"{name}: ${variable}"
        hidden.append(line)
    return tuple(hidden)


def _value(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if value is None:
        raise InputError(f"a header names ${match[1]}, and the environment has no such variable")
    return value


def tls_context(ca_file: str | None) -> ssl.SSLContext | None:
    """A context that trusts the file's authorities only; None is the system's trust. Raises InputError."""
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"{ca_file} holds no certificates that can be trusted: {error}") from None
