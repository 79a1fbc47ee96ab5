"""Write a small model that real servers serve with random weights: the lab measures servers, not answers.

    python model.py DIR [--shape micro|8b]

Needs `tokenizers`. The tokenizer is a byte-level BPE learned from this Python's standard library, so that code costs
about as many tokens as with a real model; the chat template is ChatML. Serve it with `--load-format dummy`.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VOCABULARY = 16384
SHAPES = {
    # 256 bytes of KV a token: prompts of 140,000 tokens on two CPU cores
    "micro": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "torch_dtype": "float32",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "tie_word_embeddings": True,
    },
    # 131,072 bytes of KV a token, as Llama-3.1-8B
    "8b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "torch_dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_bias": False,
        "tie_word_embeddings": False,
    },
}
COMMON = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 262144,
    "vocab_size": VOCABULARY,
    "initializer_range": 0.02,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _sources(limit: int = 12_000_000) -> Iterator[str]:
    """Texts of the standard library, in the order of their names, up to `limit` characters."""
    seen = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in path.parts or seen > limit:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        seen += len(text)
        yield text


def write(folder: Path, shape: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, START, STOP],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sources(), trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    files = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": STOP,
            "pad_token": END,
            "model_max_length": COMMON["max_position_embeddings"],
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
        "config.json": COMMON | SHAPES[shape],
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a small model with random weights to be.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="micro")
    chosen = parser.parse_args()
    write(chosen.folder, chosen.shape)
