"""Trains the pocket model on the documentation that ships with Python, with the course's own code.

    python assets/pocket/train.py [--device cuda]        (or: make pocket)

The text is cut into documents: the topics of help() and the docstrings of the standard library.
Every twentieth is held out. Chapter 01 makes the tokens, chapter 13 the model, chapter 14 trains it.
A run that is stopped goes on where its last checkpoint is. What it writes beside this file is laid
out as Hugging Face lays out a Llama, so that `transformers` reads it too.
"""

import argparse
import ast
import csv
import json
import math
import random
import sys
import sysconfig
import warnings
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors.torch import save_file
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from solutions.ex01_tokens import Tokenizer, train_bpe  # noqa: E402
from solutions.ex13_transformer import (  # noqa: E402
    POCKET,
    Transformer,
    count_parameters,
    flops_per_token,
    use_torch_kernels,
)
from solutions.ex14_training import (  # noqa: E402
    IGNORED,
    AdamW,
    bits_per_byte,
    evaluate,
    get_batch,
    learning_rate,
    load_checkpoint,
    parameter_groups,
    save_checkpoint,
    train_step,
)
from solutions.ex15_generation import generate  # noqa: E402
from solutions.ex16_pretrained import (  # noqa: E402
    LLAMA,
    byte_letters,
    load_pretrained,
    load_tokenizer,
    rename,
)

END = "<|endoftext|>"
BATCH, SEQ, STEPS, WARMUP = 8, POCKET.max_seq_len, 1200, 100
PEAK, FLOOR, WEIGHT_DECAY, DROPOUT = 2e-3, 1e-4, 0.1, 0.1
EVERY = 100                                      # steps between validations, and checkpoints
RUN = HERE / "run"                               # what a stopped run goes on from
ELSEWHERE = {"test", "tests", "idlelib", "site-packages", "dist-packages", "lib2to3", "turtledemo",
             "pydoc_data", "encodings", "__pycache__"}


def documents() -> list[str]:
    """The topics of help() and the standard library's docstrings, each once, in a fixed order."""
    from pydoc_data.topics import topics
    found = [topics[name] for name in sorted(topics)]
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.rglob("*.py")):
        if not ELSEWHERE & set(path.relative_to(library).parts):
            found += docstrings(path)
    return list(dict.fromkeys(found))


def docstrings(path: Path) -> list[str]:
    """The docstrings of a module, its classes and its functions, from 40 characters on."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    with warnings.catch_warnings(action="ignore"):
        tree = ast.parse(path.read_bytes())
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
    return [text for text in texts if len(text) >= 40]


def split() -> tuple[list[str], list[str]]:
    """The documents to train on, shuffled, and the twentieth that is held out."""
    texts = documents()
    random.Random(0).shuffle(texts)
    return [text for i, text in enumerate(texts) if i % 20], texts[::20]


def joined(texts: list[str]) -> str:
    return "".join(text + END for text in texts)


def ids(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    return torch.tensor(tokenizer.encode(joined(texts)))


def trained_tokenizer(texts: list[str], console: Console) -> Tokenizer:
    """Chapter 01's tokenizer of this text; read from tokenizer.json where one was made before."""
    if (HERE / "tokenizer.json").exists():
        return load_tokenizer(HERE)
    with console.status("training the tokenizer"):
        tokenizer = Tokenizer(*train_bpe(joined(texts), POCKET.vocab_size, [END]), [END])
    write_tokenizer(tokenizer)
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer) -> None:
    """tokenizer.json and tokenizer_config.json, for `tokenizers` and `transformers`."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Rust
    letter = byte_letters()

    def spell(token: bytes) -> str:
        return "".join(letter[byte] for byte in token)
    rust = Rust(models.BPE(
        vocab={spell(token): id for id, token in tokenizer.vocab.items() if token != END.encode()},
        merges=[(spell(left), spell(right)) for left, right in tokenizer.merges]))
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens([AddedToken(END, normalized=False, special=True)])
    rust.save(str(HERE / "tokenizer.json"))
    (HERE / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END,
        "clean_up_tokenization_spaces": False, "model_max_length": POCKET.max_seq_len}, indent=2) + "\n")


def faster_in_bfloat16(device: str) -> bool:
    """Whether this machine multiplies matrices faster in bfloat16 than in float32."""
    took = {}
    for dtype in (torch.float32, torch.bfloat16) * 3:       # the last of three rounds counts
        x = torch.ones(2048, 512, dtype=dtype, device=device)
        start = perf_counter()
        (x @ x.T).sum().item()
        took[dtype] = perf_counter() - start
    return took[torch.bfloat16] < took[torch.float32]


def torch_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Chapter 05's cross_entropy, by torch's kernel."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def train(tokens: torch.Tensor, held_out: torch.Tensor, device: str, console: Console) -> Transformer:
    """STEPS steps, from the last checkpoint where there is one; training.csv holds the losses."""
    torch.manual_seed(0)
    model = use_torch_kernels(Transformer(replace(POCKET, dropout=DROPOUT))).to(device)
    optimizer = AdamW(parameter_groups(model, WEIGHT_DECAY), PEAK, betas=(0.9, 0.95))
    rng = torch.Generator().manual_seed(0)
    RUN.mkdir(exist_ok=True)
    checkpoint, log, start = RUN / "checkpoint", RUN / "training.csv", 0
    if checkpoint.exists():
        start = load_checkpoint(checkpoint, model, optimizer, rng)
    rows = list(csv.reader(log.open()))[1:] if start else []
    rows = [row for row in rows if int(row[0]) <= start]
    flops = 3 * flops_per_token(POCKET, SEQ) * BATCH * SEQ * (STEPS - start)
    bfloat16 = faster_in_bfloat16(device)
    mixed = torch.autocast(device, torch.bfloat16, enabled=bfloat16)
    console.print(f"{count_parameters(POCKET):,} parameters, {len(tokens):,} tokens; from step {start} to {STEPS}: "
                  f"{(STEPS - start) * BATCH * SEQ:,} tokens, about {flops:.1e} FLOPs on {device}"
                  f"{', products in bfloat16' if bfloat16 else ''}")
    columns = [TextColumn("step {task.completed}"), BarColumn(), TextColumn("{task.description}"),
               TimeElapsedColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=STEPS, completed=start)
        recent = []
        for step in range(start, STEPS):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, WARMUP, STEPS, PEAK, FLOOR)
            batch = tuple(part.to(device) for part in get_batch(tokens, BATCH, SEQ, rng))
            with mixed:
                loss, _ = train_step(model, optimizer, [batch], loss=torch_loss)
            recent.append(loss)
            done = step + 1
            progress.update(bar, completed=done, description=f"loss {loss:.3f}")
            if done % EVERY == 0 or done == STEPS:
                validation = evaluate(model, held_out.to(device), SEQ)
                rows.append([done, f"{sum(recent) / len(recent):.4f}", f"{validation:.4f}"])
                recent = []
                save_checkpoint(checkpoint, model, optimizer, done, rng)
                with log.open("w", newline="") as file:
                    csv.writer(file).writerows([["step", "training loss", "validation loss"], *rows])
                progress.console.print(f"step {done}: training {rows[-1][1]}, validation {rows[-1][2]}")
    (HERE / "training.csv").write_text(log.read_text())
    return model


def export(model: Transformer) -> None:
    """config.json and model.safetensors in bfloat16, named as Hugging Face names a Llama's."""
    tensors = {name: tensor.to("cpu", torch.bfloat16).contiguous()
               for name, tensor in hf_names(model.state_dict()).items()
               if name != "lm_head.weight"}              # tied: saved once
    save_file(tensors, HERE / "model.safetensors", metadata={"format": "pt"})
    (HERE / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
        "vocab_size": POCKET.vocab_size, "hidden_size": POCKET.d_model,
        "num_hidden_layers": POCKET.layers, "num_attention_heads": POCKET.heads,
        "num_key_value_heads": POCKET.kv_heads, "head_dim": POCKET.d_model // POCKET.heads,
        "intermediate_size": POCKET.d_ff, "max_position_embeddings": POCKET.max_seq_len,
        "rms_norm_eps": POCKET.norm_eps, "rope_theta": POCKET.rope_base, "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True,
        "bos_token_id": None, "eos_token_id": POCKET.vocab_size - 1}, indent=2) + "\n")


def hf_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of one of our Llamas by Hugging Face's names: chapter 16's table, backwards."""
    return rename(state, {ours: theirs for theirs, ours in LLAMA.items()})


def trigram_bits(train_on: bytes, test_on: bytes) -> float:
    """Bits per byte of a model that knows how often each byte followed each two, and one, and none.

    Each of the three counts is mixed with the next shorter one, by Witten and Bell's weights (1991).
    """
    followers = [defaultdict(Counter) for _ in range(3)]
    for i in range(2, len(train_on)):
        for known, table in enumerate(followers):
            table[train_on[i - known:i]][train_on[i]] += 1
    bits = 0.0
    for i in range(2, len(test_on)):
        chance = 1 / 256
        for known, table in enumerate(followers):
            seen = table.get(test_on[i - known:i])
            if seen:
                chance = (seen[test_on[i]] + len(seen) * chance) / (seen.total() + len(seen))
        bits -= math.log2(chance)
    return bits / (len(test_on) - 2)


def write_card(texts: list[str], held_out: list[str], tokens: int, held_out_tokens: torch.Tensor) -> None:
    """README.md: what the model is, what it was measured at, and what it says, unselected."""
    model = use_torch_kernels(load_pretrained(HERE, dtype=torch.float32))
    tokenizer = load_tokenizer(HERE)
    loss = evaluate(model, held_out_tokens, SEQ)
    held_out_bytes = joined(held_out).encode()
    with (HERE / "training.csv").open() as file:
        rows = list(csv.reader(file))[1:]
    end = tokenizer.encode(END)
    samples = []
    for seed, prompt in enumerate(["The for statement", "Return ", "class "]):
        [new] = generate(model, [tokenizer.encode(prompt)], 80, stop=end, temperature=0.8, top_p=0.95,
                         rng=torch.Generator().manual_seed(seed))
        samples.append("```text\n" + prompt + tokenizer.decode(new).rstrip() + "\n```\n")
    version, steps = ".".join(map(str, sys.version_info[:3])), int(rows[-1][0])
    guess = math.log(POCKET.vocab_size)
    guess_bits, own_bits = (bits_per_byte(nats, len(held_out_tokens), len(held_out_bytes))
                            for nats in (guess, loss))
    trigram = trigram_bits(joined(texts).encode(), held_out_bytes)
    (HERE / "README.md").write_text(f"""\
# The pocket model

A Llama of {count_parameters(POCKET):,} parameters, made by this course's own code: chapter 01's tokenizer,
chapter 13's `Transformer(POCKET)`, chapter 14's training. It knows Python's documentation a
little. It is for looking into, not for relying on: what it says about Python is often wrong.

- **Files.** `config.json`, `model.safetensors` (bfloat16), `tokenizer.json`: laid out as Hugging Face
  lays out a Llama, so `transformers` loads this folder too.
- **Data.** The topics of Python {version}'s `help()` and the docstrings of its standard library
  (PSF License): {len(texts):,} documents, {tokens:,} tokens of {POCKET.vocab_size:,} kinds. One document in twenty,
  {len(held_out):,} of them with {len(held_out_tokens):,} tokens, was held out. No document is there twice, but
  some docstrings differ from others in a word or two, so a little of what was held out is familiar.
- **Training.** {steps:,} steps of {BATCH} x {SEQ} tokens, {steps * BATCH * SEQ / tokens:.1f} times over the text;
  AdamW, learning rate up to {PEAK:g}, dropout {DROPOUT:g}; seed 0; products in bfloat16
  where the machine is faster at them. `training.csv` has the losses on the way.

| on the held-out documents | nats per token | bits per byte |
|---|---|---|
| a guess, ln {POCKET.vocab_size:,} | {guess:.2f} | {guess_bits:.2f} |
| bytes, each by the two before it | | {trigram:.2f} |
| this model, weights in bfloat16 | {loss:.2f} | {own_bits:.2f} |

`make pocket` trains it again. A run that is stopped goes on from its last checkpoint. Another version of Python
has other documentation, and so gives another model.

## What it says

The first sample for each prompt (seeds 0, 1, 2; temperature 0.8, top-p 0.95, at most 80 tokens):

{chr(10).join(samples)}""", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    console = Console()
    texts, held_out = split()
    tokenizer = trained_tokenizer(texts, console)
    with console.status("encoding the text"):
        tokens, held_out_tokens = ids(tokenizer, texts), ids(tokenizer, held_out)
    export(train(tokens, held_out_tokens, device, console))
    write_card(texts, held_out, len(tokens), held_out_tokens)


if __name__ == "__main__":
    main()
