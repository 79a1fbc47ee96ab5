"""Error answers, word for word as vLLM 0.32 gives them."""

from __future__ import annotations

from typing import Any

import orjson


class ApiError(Exception):
    """Ends a request with a status and vLLM's error body."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param
        self.headers: dict[str, str] = {}

    def body(self) -> dict[str, Any]:
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        }

    def anthropic_body(self) -> dict[str, Any]:
        return {"type": "error", "error": {"type": self.kind, "message": self.message}}


class ValidationError(ApiError):
    """A body that does not fit the schema; keeps the OpenAI shape on every path."""

    def __init__(self, detail: str, param: str | None) -> None:
        super().__init__(400, "Bad Request", f"1 validation error:\n  {detail}", param)


def missing(field: str, keys: int) -> ValidationError:
    location = f"body.{field}"
    detail = f"{{'type': 'missing', 'loc': '{location}', 'msg': 'Field required', 'input': '<dict of {keys} items>'}}"
    return ValidationError(detail, location)


def wrong_type(field: str, kind: str, wanted: str, value: Any) -> ValidationError:
    location = f"body.{field}"
    detail = f"{{'type': '{kind}', 'loc': '{location}', 'msg': 'Input should be {wanted}', 'input': {value!r:.200}}}"
    return ValidationError(detail, location)


def not_json(position: int, problem: str) -> ValidationError:
    location = f"body.{position}"
    detail = (
        f"{{'type': 'json_invalid', 'loc': '{location}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', "
        f"'ctx': {{'error': '{problem}'}}}}"
    )
    return ValidationError(detail, location)


def media_type() -> ValidationError:
    return ValidationError("Unsupported Media Type: Only 'application/json' is allowed", None)


def bad_value(message: str, param: str, value: object = None) -> ApiError:
    note = f"(parameter={param})" if value is None else f"(parameter={param}, value={value})"
    return ApiError(400, "BadRequestError", f"{message} {note}", param)


def no_model(name: object, known: str) -> ApiError:
    return ApiError(
        404, "NotFoundError", f"The model `{name}` does not exist. Valid aliases: {known}.", "model"
    )


def too_long(limit: int, tokens: int) -> ApiError:
    message = (
        f"This model's maximum context length is {limit} tokens. However, your prompt contains {tokens} input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt."
    )
    return bad_value(message, "input_tokens", tokens)


def too_many_output(name: str, wanted: int, limit: int) -> ApiError:
    message = (
        f"{name}={wanted} cannot be greater than max_model_len={limit}. Please request fewer output tokens."
    )
    return bad_value(message, name, wanted)


def no_room(limit: int, prompt: int, wanted: int) -> ApiError:
    message = (
        f"This model's maximum context length is {limit} tokens. However, you requested {wanted} output tokens and your "
        f"prompt contains {prompt} input tokens, for a total of {prompt + wanted} tokens. Please reduce the length of "
        "the input prompt or the number of requested output tokens."
    )
    return bad_value(message, "input_tokens", prompt)


def refused(overloaded: bool, after_s: float) -> ApiError:
    """What a gateway in front of a busy server says."""
    error = (
        ApiError(429, "RateLimitError", "Too many requests.")
        if overloaded
        else ApiError(503, "ServiceUnavailableError", "The server is overloaded.")
    )
    if overloaded:
        error.headers["Retry-After"] = str(max(1, round(after_s)))
    return error


def engine_failed() -> ApiError:
    return ApiError(500, "InternalServerError", "EngineCore encountered an issue.")


def stream_error() -> bytes:
    """The same inside a stream that began well."""
    return b"data: " + orjson.dumps(engine_failed().body()) + b"\n\n"
