"""The JSON Schema of one line of a trace, version 1, from the record types themselves.

`python -m loadgen.trace.schema` prints it; `traces/trace.schema.json` is its output, and a test keeps them equal.
Rules between records (order, references, cycles) are not in a schema: `loadgen trace validate` checks them.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from loadgen.trace.model import VERSION, Record


def schema() -> dict[str, Any]:
    """Any record of a trace; told apart by `type`."""
    made = msgspec.json.schema(Record)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"loadgen trace, version {VERSION}: one line",
        **made,
    }


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1, ensure_ascii=False))
