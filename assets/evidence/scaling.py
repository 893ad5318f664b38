"""What lesson 27's experiments have in common: a small Llama over bytes, a run, and what it is measured by."""

from collections.abc import Callable

import torch

from assets.evidence import library
from given.torch_kernels import use_torch_kernels
from solutions.ex05_softmax import cross_entropy
from solutions.ex13_transformer import ModelConfig, Transformer
from solutions.ex14_training import clip_grad_norm, evaluate, get_batch, learning_rate

SEQ, HELD_OUT = 64, 32_768          # bytes


def config(width: int, layers: int, tied: bool = True) -> ModelConfig:
    """Heads of 16 features, a feed-forward of twice the width."""
    heads = width // 16 or 1
    return ModelConfig(vocab_size=256, d_model=width, layers=layers, heads=heads, kv_heads=heads, head_dim=16,
                       d_ff=2 * width, max_seq_len=SEQ, tie_embeddings=tied)


def new(settings: ModelConfig, seed: int) -> Transformer:
    """A model on torch's kernels (lesson 13), and torch's seed."""
    torch.manual_seed(seed)
    return use_torch_kernels(Transformer(settings))


def cosine(steps: int) -> Callable[[int], float]:
    """Lesson 14's schedule as a share of the peak: 5 % of the steps rise, the floor is a twentieth."""
    return lambda step: learning_rate(step, steps // 20, steps, 1.0, 0.05)


def train(model: Transformer, optimizer, seed: int, steps: int, batch: int, share: Callable[[int], float],
          stop: int | None = None) -> list[float]:
    """The losses of a run, whose rates are their peaks times share(step). stop: after so many of the steps."""
    text, rng, losses = library.texts()[0], torch.Generator().manual_seed(seed), []
    peaks = [group["lr"] for group in optimizer.param_groups]
    for step in range(steps if stop is None else stop):
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * share(step)
        inputs, targets = get_batch(text, batch, SEQ, rng)
        loss = cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(list(model.parameters()), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def held_out(model: Transformer) -> float:
    """The loss in nats per byte on the text held out."""
    return evaluate(model, library.texts()[1][:HELD_OUT], SEQ, batch=32)


def means(losses: list[float], of: int = 20) -> str:
    return " ".join(f"{sum(losses[i:i + of]) / of:.4f}" for i in range(0, len(losses) - of + 1, of))
