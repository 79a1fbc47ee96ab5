"""Turn a folder of `model.py` (shape micro) into a GGUF with random weights, which llama.cpp's server reads.

    python gguf_model.py DIR FILE.gguf

Needs `gguf` and `numpy`. Same tokenizer, same chat template, one layer of 32: what it answers means nothing, how it is
streamed and counted does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

FEED_FORWARD = 64


def write(folder: Path, out: Path, *, context: int) -> None:
    config = json.loads((folder / "config.json").read_text())
    told = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    size, heads, layers = config["hidden_size"], config["num_attention_heads"], config["num_hidden_layers"]
    writer = gguf.GGUFWriter(str(out), "qwen2")
    writer.add_name("micro")
    writer.add_context_length(context)
    writer.add_embedding_length(size)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    _vocabulary(writer, tokenizer, told, config)
    draw = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw.normal(0.0, 0.02, shape).astype(np.float32))

    tensor("token_embd.weight", config["vocab_size"], size)
    tensor("output.weight", config["vocab_size"], size)
    writer.add_tensor("output_norm.weight", np.ones(size, np.float32))
    wide, narrow = heads * config["head_dim"], config["num_key_value_heads"] * config["head_dim"]
    for layer in range(layers):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(size, np.float32))
        for name, rows in (("attn_q", wide), ("attn_k", narrow), ("attn_v", narrow)):
            tensor(f"blk.{layer}.{name}.weight", rows, size)
            tensor(f"blk.{layer}.{name}.bias", rows)
        tensor(f"blk.{layer}.attn_output.weight", size, wide)
        tensor(f"blk.{layer}.ffn_gate.weight", FEED_FORWARD, size)
        tensor(f"blk.{layer}.ffn_up.weight", FEED_FORWARD, size)
        tensor(f"blk.{layer}.ffn_down.weight", size, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocabulary(
    writer: gguf.GGUFWriter, tokenizer: dict[str, Any], told: dict[str, Any], config: dict[str, Any]
) -> None:
    special = {token["content"] for token in tokenizer["added_tokens"]}
    ids = {number: text for text, number in tokenizer["model"]["vocab"].items()}
    tokens = [ids.get(number, f"[unused{number}]") for number in range(config["vocab_size"])]
    kinds = [
        gguf.TokenType.CONTROL
        if token in special
        else gguf.TokenType.NORMAL
        if number in ids
        else gguf.TokenType.UNUSED
        for number, token in enumerate(tokens)
    ]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")  # the pattern of a byte-level pre-tokenizer without one of its own
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["bos_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(told["chat_template"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a model of random weights as a GGUF.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--context", type=int, default=163840, help="context length in tokens")
    chosen = parser.parse_args()
    write(chosen.folder, chosen.out, context=chosen.context)
