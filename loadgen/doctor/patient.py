"""Who is examined, and the texts to ask with."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field

from loadgen.doctor.ask import Asked, Message, ask
from loadgen.replay.endpoint import Api, Facts
from loadgen.replay.rendering import Renderer

# Short words that are a token each, with the space before them, in the tokenizers of current models.
_WORDS = (
    "the of and to in is that for with was this are from have they one had word but not what all were when your can "
    "said there use each which she how their will other about out many then them these some her would make like him "
    "into time has look two more write see number way could people first water been call who oil its now find long down"
)  # fmt: skip


@dataclass
class Patient:
    """One endpoint under examination. Times that the doctor reports are the endpoint's seconds (wall x time scale)."""

    api: Api
    facts: Facts
    renderer: Renderer
    context_tokens: int = 140_000  # what a run means to send
    probe_tokens: int = 8_192
    timeout_s: float = 900.0
    store: Api | None = None  # /metrics of a KV store beside the server
    evict: bool = False  # the KV pool may be filled with other prompts to see what lies behind it
    forced: bool = field(default=True, init=False)  # whether ignore_eos and min_tokens are accepted
    prompt_tokens_sent: int = field(default=0, init=False)

    @property
    def scale(self) -> float:
        return self.facts.time_scale

    def ask(self, text: str, *, output_tokens: int = 2, extra: dict[str, object] | None = None) -> Asked:
        """One streamed answer to one user message."""
        messages: list[Message] = [{"role": "user", "content": text}]
        asked = ask(
            self.api,
            self.facts.model,
            messages,
            output_tokens=output_tokens,
            forced=self.forced,
            extra=dict(extra or {}),
            timeout_s=self.timeout_s,
        )
        self.prompt_tokens_sent += asked.prompt_tokens or 0
        return asked

    def ttft_s(self, asked: Asked) -> float | None:
        return None if asked.ttft_s is None else asked.ttft_s * self.scale


def text(tokens: int) -> str:
    """About `tokens` tokens of words that nobody has sent before: a nonce, then random words."""
    dice = random.Random()
    return f"{secrets.randbelow(10**16):016d} " + " ".join(dice.choices(_WORDS.split(), k=max(1, tokens - 8)))


def salt() -> str:
    """A cache salt that nobody has used before."""
    return f"doctor-{secrets.token_hex(8)}"
