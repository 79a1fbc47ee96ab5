"""Models whose KV layout is known without their configuration. Checked in `tests/sizing/test_models.py`."""

from __future__ import annotations

import difflib
from pathlib import Path

from loadgen.errors import InputError
from loadgen.sizing.shape import Shape, read

KNOWN = {
    shape.name: shape
    for shape in (
        Shape(name="mistral-medium-3.5-128b", layers=88, kv_heads=8, head_dim=128, max_len=262_144),
        Shape(name="devstral-2-123b", layers=88, kv_heads=8, head_dim=128, max_len=262_144),
        Shape(name="devstral-small-24b", layers=40, kv_heads=8, head_dim=128, max_len=131_072),
        Shape(name="llama-3.1-8b", layers=32, kv_heads=8, head_dim=128, max_len=131_072),
        Shape(name="llama-3.1-70b", layers=80, kv_heads=8, head_dim=128, max_len=131_072),
        Shape(name="qwen3-coder-480b-a35b", layers=62, kv_heads=8, head_dim=128, max_len=262_144),
        Shape(name="qwen3-30b-a3b", layers=48, kv_heads=4, head_dim=128, max_len=262_144),
        Shape(name="qwen3-32b", layers=64, kv_heads=8, head_dim=128, max_len=131_072),
        Shape(name="deepseek-v3", layers=61, latent=576, max_len=163_840),
        Shape(name="deepseek-r1", layers=61, latent=576, max_len=163_840),
        Shape(name="kimi-k2", layers=61, latent=576, max_len=131_072),
        Shape(
            name="gpt-oss-120b",
            layers=18,
            sliding_layers=18,
            window=128,
            kv_heads=8,
            head_dim=64,
            max_len=131_072,
        ),
        Shape(name="glm-4.5", layers=92, kv_heads=8, head_dim=128, max_len=131_072),
        Shape(name="glm-4.6", layers=92, kv_heads=8, head_dim=128, max_len=202_752),
        Shape(name="glm-5.2", layers=78, latent=576),
    )
}


def find(argument: str) -> Shape:
    """A known model by name (with or without its organisation), or a configuration file or folder."""
    path = Path(argument)
    if path.exists():
        return read(path)
    name = argument.rsplit("/", 1)[-1].lower()
    if name in KNOWN:
        return KNOWN[name]
    near = difflib.get_close_matches(name, KNOWN, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InputError(
        f"no model is called {argument!r} and no such file exists{hint} (give its config.json, or one of: {', '.join(KNOWN)})"
    )
