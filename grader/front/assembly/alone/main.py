"""The end of an assembled file: it loads a checkpoint and goes on with a text."""

import argparse
import sys
from pathlib import Path

import torch

from exercises.ex15_generation import stream
from exercises.ex16_pretrained import load_pretrained, load_tokenizer

WEIGHTS = "assets/pocket"


def main() -> None:
    """Continue a text, and show it as it comes."""
    parser = argparse.ArgumentParser(description="Continues a text with a GPT-2, Llama or Qwen3.")
    parser.add_argument("prompt")
    parser.add_argument("--weights", type=Path, default=Path(__file__).resolve().parent / WEIGHTS,
                        help="a folder with config.json, model.safetensors and tokenizer.json")
    parser.add_argument("--tokens", type=int, default=200, help="how many to write at most")
    parser.add_argument("--temperature", type=float, default=0.8, help="0: always the likeliest")
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    try:
        model, tokenizer = load_pretrained(asked.weights, dtype=torch.float32), load_tokenizer(asked.weights)
        print(asked.prompt, end="", flush=True)
        for piece in stream(model, tokenizer, asked.prompt, asked.tokens,
                            stop=tokenizer.encode("<|endoftext|>"),
                            rng=torch.Generator().manual_seed(asked.seed),
                            temperature=asked.temperature, top_p=asked.top_p):
            print(piece, end="", flush=True)
    except (ValueError, KeyboardInterrupt) as stopped:
        sys.exit(f"\n{stopped}")
    print()
