"""How much KV a model keeps for a token, from its `config.json` or Mistral's `params.json`.

MHA, GQA, MQA: 2 x layers x kv_heads x head_dim x bytes. MLA: layers x (kv_lora_rank + qk_rope_head_dim) x bytes, once
for all ranks. Sliding-window layers keep at most a window. Linear-attention and state-space layers keep a state
of constant size a sequence and no KV.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from loadgen.errors import InputError

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_ATTENTION = {"attention", "full_attention", "*", "hybrid"}


class Shape(msgspec.Struct, kw_only=True, frozen=True):
    """KV layout of one model. `sliding_layers` of `window` tokens come on top of `layers`, which keep everything."""

    name: str
    layers: int
    kv_heads: int = 1
    head_dim: int = 0
    sliding_layers: int = 0
    window: int = 0
    latent: int = 0  # MLA: kv_lora_rank + qk_rope_head_dim; then kv_heads and head_dim do not count
    indexer_bytes: int = 0  # a token and layer (sparse attention)
    constant_layers: int = 0  # linear attention, state space: no KV that grows
    max_len: int | None = None

    def layer_bytes(self, dtype: str = "bf16") -> int:
        """Bytes that one layer keeps for one token, all ranks together and none twice."""
        width = DTYPE_BYTES[dtype]
        own = self.latent * width if self.latent else 2 * self.kv_heads * self.head_dim * width
        return own + self.indexer_bytes

    def bytes_per_token(self, dtype: str = "bf16", hybrid: bool = True) -> int:
        """Bytes that grow with every token; with the hybrid manager off, sliding layers keep everything too."""
        layers = self.layers if hybrid else self.layers + self.sliding_layers
        return layers * self.layer_bytes(dtype)

    def context_bytes(self, tokens: int, dtype: str = "bf16", hybrid: bool = True) -> int:
        """Bytes of a whole context, windows included."""
        kept = min(tokens, self.window) if hybrid else 0
        return tokens * self.bytes_per_token(dtype, hybrid) + kept * self.sliding_layers * self.layer_bytes(
            dtype
        )

    def ranks(self, tp: int) -> int:
        """Over how many ranks a token's KV is spread: MLA is copied to all, heads are copied beyond their number."""
        return 1 if self.latent else min(tp, self.kv_heads)


def read(path: Path) -> Shape:
    """Shape from a configuration file or a folder that holds one. Raises InputError naming what is missing."""
    if path.is_dir():
        found = [path / name for name in ("config.json", "params.json") if (path / name).is_file()]
        if not found:
            raise InputError(f"{path} holds neither config.json nor params.json")
        path = found[0]
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise InputError(f"{path} is not a model configuration: it holds no JSON object")
    try:
        return parse(config, str(config.get("_name_or_path") or path.parent.name or path.name))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(f"{path}: cannot work out the KV layout: {error}") from None


def parse(config: Mapping[str, Any], name: str) -> Shape:
    """Shape from a configuration's keys. Raises KeyError for one that is missing."""
    outer = config
    while (
        inner := next((config[key] for key in _NESTED if isinstance(config.get(key), dict)), None)
    ) is not None:
        config = inner
    layers = int(_first(config, "num_hidden_layers", "n_layers", "n_layer", "num_layers"))
    if layers < 1:
        raise ValueError("the number of layers must be at least 1")
    max_len = config.get("max_position_embeddings") or config.get("max_seq_len") or outer.get("max_seq_len")
    full, sliding, constant, window = _layer_kinds(config, layers)
    base = Shape(name=name, layers=full, constant_layers=constant, max_len=max_len)
    if config.get("kv_lora_rank"):
        latent = int(config["kv_lora_rank"]) + int(_first(config, "qk_rope_head_dim"))
        # DeepSeek sparse attention: an fp8 key and its fp32 scale for the indexer, a token and layer
        indexer = int(config["index_head_dim"]) + 4 if config.get("index_head_dim") else 0
        return msgspec.structs.replace(base, latent=latent, indexer_bytes=indexer)
    heads = int(_first(config, "num_attention_heads", "n_heads", "n_head"))
    kv_heads = (
        1
        if config.get("multi_query")
        else int(
            _first(config, "num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", default=heads)
        )
    )
    head_dim = config.get("head_dim")
    if not head_dim:
        head_dim = int(_first(config, "hidden_size", "dim", "n_embd")) // heads
    if kv_heads < 1 or int(head_dim) < 1:
        raise ValueError("KV heads and their size must be at least 1")
    return msgspec.structs.replace(
        base, kv_heads=kv_heads, head_dim=int(head_dim), sliding_layers=sliding, window=window
    )


def _layer_kinds(config: Mapping[str, Any], layers: int) -> tuple[int, int, int, int]:
    """(full, sliding, constant) layers and the window."""
    window = int(config.get("sliding_window") or config.get("attention_chunk_size") or 0)
    if config.get("use_sliding_window") is False:
        window = 0
    kinds = (
        config.get("layer_types") or config.get("layers_block_type") or config.get("hybrid_override_pattern")
    )
    if kinds:
        sliding = sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds)
        full = sum(kind in _ATTENTION for kind in kinds)
        return (
            (full, sliding, len(kinds) - full - sliding, window)
            if window
            else (full + sliding, 0, len(kinds) - full - sliding, 0)
        )
    interval = config.get("full_attention_interval") or config.get("attn_layer_period")
    if interval:
        full = layers // int(interval)
        return full, 0, layers - full, 0
    if not window:
        return layers, 0, 0, 0
    pattern = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern")
    if pattern:
        full = layers // int(pattern)
        return full, layers - full, 0, window
    if config.get("max_window_layers") is not None and config.get("use_sliding_window"):
        full = min(layers, int(config["max_window_layers"]))
        return full, layers - full, 0, window
    return 0, layers, 0, window


def _first(config: Mapping[str, Any], *names: str, default: Any = None) -> Any:
    for name in names:
        if config.get(name) is not None:
            return config[name]
    if default is not None:
        return default
    raise KeyError(f"none of {', '.join(names)} is set")
