"""A decoder of some 60 million parameters in plain torch (RMS norms, rotary positions, SwiGLU), and fast sampling.

Each layer attends with what its position and the few before it hold. To copy, a position looks for an earlier one that
the same token stands before, which one layer finds then; without, it takes two layers that have to learn it together.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder. `context`: the longest sequence, in tokens. `dropout`: of what each part of a layer adds.
    `reach`: how many positions before it a position attends with."""

    vocabulary: int
    width: int = 640
    layers: int = 12
    heads: int = 10
    context: int = 2048
    dropout: float = 0.0
    reach: int = 3


class DecoderBlock(nn.Module):
    """One layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, inner = shape.heads, 256 * round(shape.width * 8 / 3 / 256) or 64
        self.attend_norm, self.inner_norm = nn.RMSNorm(shape.width), nn.RMSNorm(shape.width)
        self.before = nn.Parameter(torch.empty(shape.reach, shape.width))
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.query_norm = nn.RMSNorm(shape.width // shape.heads)
        self.key_norm = nn.RMSNorm(shape.width // shape.heads)
        self.mix = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, shape.width, bias=False)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """The layer on whole sequences, each position with those before it."""
        own = mixed = self.attend_norm(x)
        for back, weight in enumerate(self.before, 1):
            mixed = mixed + weight * F.pad(own, (0, 0, back, 0))[:, : own.shape[1]]
        q, k, v = self.heads_of(mixed, (cosine, sine))
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    def heads_of(self, mixed: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, heads, length, width / heads), of what positions attend with."""
        batch, length, width = mixed.shape
        parts = self.qkv(mixed).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        q, k = rotated(self.query_norm(q.float()), *rotation), rotated(self.key_norm(k.float()), *rotation)
        return q.to(v.dtype), k.to(v.dtype), v

    def rest(self, x: Tensor, attended: Tensor) -> Tensor:
        """What follows attention."""
        x = x + self.dropout(self.mix(attended.transpose(1, 2).flatten(2)))
        gate, up = self.up(self.inner_norm(x)).chunk(2, -1)
        return x + self.dropout(self.down(F.silu(gate) * up))


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary positions: x is (batch, heads, length, size), the others broadcast to (…, length, size / 2)."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Decoder(nn.Module):
    """Tokens (batch, length) in, logits (batch, length, vocabulary) out; of the flattened `places` alone, (places,
    vocabulary), where they are given."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(DecoderBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        for block in self.blocks:
            nn.init.normal_(block.before, std=0.3)
        size = shape.width // shape.heads // 2
        angles = torch.arange(shape.context)[:, None] / 10000 ** (torch.arange(size) / size)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        length = tokens.shape[1]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cosine[:length], self.sine[:length])
        if places is not None:
            x = x.flatten(0, 1)[places]
        return F.linear(self.norm(x), self.embedding.weight)

    def advance(self, tokens: Tensor, at: Tensor, start: Tensor, caches: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
        """Logits (batch, vocabulary) behind `tokens`, (batch, length), which get slots `at`, (length,), of the caches.

        Row n's sequence begins at slot `start[n]`. A cache is (batch, heads, slots, size) of keys and of values, and
        (batch, slots, width) of what layers begin with.
        """
        slots = torch.arange(caches[0][0].shape[2], device=tokens.device)
        before = slots <= at[:, None]
        seen = before & (slots >= start[:, None, None]) | (slots == at[:, None])  # padding sees itself, or it is NaN
        position = (at - start[:, None]).clamp(min=0)
        rotation = self.cosine[position][:, None], self.sine[position][:, None]
        x = self.embedding(tokens)
        for block, (keys, values, owns) in zip(self.blocks, caches, strict=True):
            mixed = block.attend_norm(x)
            owns.index_copy_(1, at, (mixed * (at >= start[:, None])[..., None]).to(owns.dtype))
            for back, weight in enumerate(block.before, 1):
                mixed = mixed + weight * owns[:, (at - back).clamp(min=0)] * (at >= back)[:, None]
            q, k, v = block.heads_of(mixed, rotation)
            keys.index_copy_(2, at, k.to(keys.dtype))
            values.index_copy_(2, at, v.to(values.dtype))
            attended = F.scaled_dot_product_attention(q.to(keys.dtype), keys, values, attn_mask=seen[:, None])
            x = block.rest(x, attended)
        return F.linear(self.norm(x[:, -1]), self.embedding.weight)


@torch.no_grad()
def sample(
    model: Decoder, prompts: list[list[int]], end: int, temperature: float = 0.0, longest: int = 1200
) -> list[list[int]]:
    """What the model writes behind each prompt, up to the token `end` or `longest` tokens; the greedy answer at
    temperature 0. All prompts are done at once. On a GPU the step is one CUDA graph."""
    model.eval()
    device = model.embedding.weight.device
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    width, batch = min(max(map(len, prompts)), model.shape.context - 1), len(prompts)
    prompts = [prompt[-width:] for prompt in prompts]
    slots = min(width + longest, model.shape.context)
    size = model.shape.width // model.shape.heads
    caches = [
        tuple(
            torch.zeros(batch, *each, device=device, dtype=dtype)
            for each in ((model.shape.heads, slots, size), (model.shape.heads, slots, size), (slots, model.shape.width))
        )
        for _ in model.blocks
    ]
    padded = torch.tensor([[end] * (width - len(p)) + p for p in prompts], device=device)
    start = torch.tensor([width - len(p) for p in prompts], device=device)

    def following(tokens: Tensor, at: Tensor) -> Tensor:
        with torch.autocast(device.type, dtype, enabled=device.type == "cuda"):
            logits = model.advance(tokens, at, start, caches).float()
        if temperature:
            logits = logits / temperature - torch.empty_like(logits).exponential_().log_()
        return logits.argmax(-1)

    written = torch.full((batch, slots), end, device=device)
    written[:, :width] = padded
    written[:, width] = following(padded, torch.arange(width, device=device))
    token, at = written[:, width : width + 1].clone(), torch.full((1,), width, device=device)
    run = _captured(lambda: following(token, at)) if device.type == "cuda" else lambda: following(token, at)
    over = written[:, width].eq(end)
    for number in range(width, slots - 1):
        token.copy_(written[:, number : number + 1])
        at.fill_(number)
        written[:, number + 1] = torch.where(over, end, run())
        over |= written[:, number + 1].eq(end)
        if number % 64 == 0 and bool(over.all()):
            break
    rows = written[:, width:].tolist()
    return [row[: row.index(end)] if end in row else row for row in rows]


def _captured(step):
    """The step as a CUDA graph; what it returns is overwritten by the next call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def run() -> Tensor:
        graph.replay()
        return result

    return run
