"""KV layouts: the reference's table, and configurations as they are published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.errors import InputError
from loadgen.sizing.models import KNOWN, find
from loadgen.sizing.shape import parse, read

LENGTH = 140_000


@pytest.mark.parametrize(
    ("name", "dtype", "per_token", "gb", "chunk_mib_tp8"),
    [
        ("mistral-medium-3.5-128b", "bf16", 360_448, 50.46, 11.00),
        ("devstral-2-123b", "bf16", 360_448, 50.46, 11.00),
        ("llama-3.1-8b", "bf16", 131_072, 18.35, 4.00),
        ("llama-3.1-70b", "bf16", 327_680, 45.88, 10.00),
        ("qwen3-coder-480b-a35b", "bf16", 253_952, 35.55, 7.75),
        ("qwen3-30b-a3b", "bf16", 98_304, 13.76, 6.00),  # 4 KV heads: at TP 8 two ranks hold each
        ("qwen3-32b", "bf16", 262_144, 36.70, 8.00),
        ("deepseek-v3", "bf16", 70_272, 9.84, 17.2),  # MLA: every rank holds all of it
        ("kimi-k2", "bf16", 70_272, 9.84, 17.2),
        ("glm-4.5", "bf16", 376_832, 52.76, 11.5),
        ("glm-5.2", "fp8", 44_928, 6.29, None),
        ("devstral-small-24b", "bf16", 163_840, 22.94, 5.0),
    ],
)
def test_the_references_table(
    name: str, dtype: str, per_token: int, gb: float, chunk_mib_tp8: float | None
) -> None:
    shape = KNOWN[name]
    assert shape.bytes_per_token(dtype) == per_token
    assert shape.context_bytes(LENGTH, dtype) / 1e9 == pytest.approx(gb, abs=0.005)
    if chunk_mib_tp8 is not None:
        assert 256 * per_token / shape.ranks(8) / 2**20 == pytest.approx(chunk_mib_tp8, rel=0.003)


def test_sliding_windows_keep_a_window_unless_the_hybrid_manager_is_off() -> None:
    shape = KNOWN["gpt-oss-120b"]
    assert shape.bytes_per_token() == 36_864
    assert shape.bytes_per_token(hybrid=False) == 73_728
    assert shape.context_bytes(LENGTH) / 1e9 == pytest.approx(5.16, abs=0.01)
    assert shape.context_bytes(LENGTH) - LENGTH * 36_864 == pytest.approx(4.7e6, rel=0.01)
    assert shape.context_bytes(LENGTH, hybrid=False) / 1e9 == pytest.approx(10.32, abs=0.005)


CONFIGS: dict[str, tuple[dict[str, Any], int]] = {
    "llama": ({"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}, 131_072),
    "qwen3 says its head size": (
        {"num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 5120, "head_dim": 128,
         "sliding_window": None, "use_sliding_window": False, "max_window_layers": 64}, 262_144,
    ),
    "qwen2 with the window off": (
        {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584,
         "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28}, 57_344,
    ),
    "mistral params.json": ({"dim": 5120, "n_layers": 40, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128}, 163_840),
    "nested twice": (
        {"vision_config": {"num_hidden_layers": 3}, "thinker_config": {"text_config": {
            "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}}}, 98_304,
    ),
    "deepseek v3": (
        {"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "hidden_size": 7168,
         "kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_nextn_predict_layers": 1}, 70_272,
    ),
    "deepseek v3.2, with its indexer": (
        {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128}, 61 * (1152 + 132),
    ),
    "falcon, one head": ({"n_layer": 32, "n_head": 71, "hidden_size": 4544, "multi_query": True}, 2 * 32 * 64 * 2),
    "gpt2, all heads": ({"n_layer": 12, "n_head": 12, "n_embd": 768}, 2 * 12 * 768 * 2),
    "gpt-oss": (
        {"num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
         "layer_types": ["sliding_attention", "full_attention"] * 18}, 36_864,
    ),
    "gemma 3, one of six is full": (
        {"num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
         "sliding_window": 1024, "sliding_window_pattern": 6}, 2 * 10 * 16 * 128 * 2,
    ),
    "qwen3-next, one of four has KV": (
        {"num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
         "full_attention_interval": 4, "linear_num_value_heads": 32}, 2 * 12 * 2 * 256 * 2,
    ),
    "nemotron-h, 4 stars": (
        {"num_hidden_layers": 10, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
         "hybrid_override_pattern": "M-M*-M*-**"}, 2 * 4 * 8 * 128 * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_published_configurations(name: str) -> None:
    config, per_token = CONFIGS[name]
    assert parse(config, name).bytes_per_token() == per_token


def test_a_folder_or_a_file_will_do(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(json.dumps(CONFIGS["mistral params.json"][0]))
    assert find(str(tmp_path)).bytes_per_token() == 163_840
    assert find(str(tmp_path / "params.json")).bytes_per_token() == 163_840
    assert find("mistralai/Devstral-2-123B").layers == 88


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ("{}", "none of num_hidden_layers"),
        ('{"num_hidden_layers": 2}', "none of num_attention_heads"),
        ('{"num_hidden_layers": "many", "num_attention_heads": 1}', "cannot work out"),
        ('{"num_hidden_layers": 0, "num_attention_heads": 1}', "at least 1"),
        ('{"num_hidden_layers": 2, "num_attention_heads": 0, "hidden_size": 5}', "cannot work out"),
    ],
)
def test_a_bad_configuration_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read(path)


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean llama-3\.1-8b\?"):
        find("llama-3.1-8B-x")
