"""Which error class an answer with a status other than 200 belongs to, and its words."""

from __future__ import annotations

import re
import time
from email.utils import parsedate_to_datetime

import orjson

from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire.api import error_text

_OVERFLOW = re.compile(
    r"maximum context length|context[_ ]length[_ ]exceeded|max_model_len|context window|prompt is too long"
    r"|longer than the model's context|exceeds? the (?:model'?s? )?(?:maximum )?(?:context|number of tokens)",
    re.IGNORECASE,
)


def classify(status: int, body: bytes) -> tuple[ErrorClass, str]:
    """Error class and message of a response that is not 200."""
    words = _words(body)
    message = f"HTTP {status}: {words}" if words else f"HTTP {status}"
    if status in (429, 503):
        return ErrorClass.OVERLOADED, message
    if status in (400, 413, 422) and _OVERFLOW.search(words):
        return ErrorClass.CONTEXT_OVERFLOW, message
    if status >= 500:
        return ErrorClass.HTTP_5XX, message
    if 300 <= status < 400:
        return ErrorClass.HTTP_4XX, f"{message} (redirects are not followed; give the final address)"
    if status >= 400:
        return ErrorClass.HTTP_4XX, message
    return ErrorClass.MALFORMED, f"{message} (expected 200)"


def _words(body: bytes) -> str:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        return " ".join(body.decode("utf-8", "replace").split())[:300]
    if isinstance(found, dict):
        for key in ("error", "detail", "message"):
            if found.get(key):
                return " ".join(error_text(found[key]).split())[:300]
    return str(found)[:300]


def retry_after_s(value: str) -> float | None:
    """Seconds to wait by a `Retry-After` header, a number or a date; None when it is neither."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return None
