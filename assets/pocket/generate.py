"""Continues a text with the pocket model, a small Llama that has read documentation, and shows it as it comes.

    python assets/pocket/generate.py "The for statement"        (or: make generate PROMPT="...")
"""

import argparse
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex15_generation import stream  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=200, help="how many to write at most")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: always the likeliest")
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    model = use_torch_kernels(load_pretrained(HERE, dtype=torch.float32))
    tokenizer = load_tokenizer(HERE)
    print(asked.prompt, end="", flush=True)
    try:
        for piece in stream(model, tokenizer, asked.prompt, asked.tokens,
                            stop=tokenizer.encode("<|endoftext|>"),
                            rng=torch.Generator().manual_seed(asked.seed),
                            temperature=asked.temperature, top_p=asked.top_p):
            print(piece, end="", flush=True)
    except (ValueError, KeyboardInterrupt) as stopped:
        sys.exit(f"\n{stopped}")
    print()


if __name__ == "__main__":
    main()
