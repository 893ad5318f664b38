"""Trains the pocket model on docstrings, with the course's own code.

    python assets/pocket/train.py [--device cuda]        (or: make pocket)

text.py beside it says what is read. Lesson 01 makes the tokens, lesson 13 the model, lesson 14 trains it.
A run that is stopped goes on where its last checkpoint is. What it writes beside this file is laid
out as Hugging Face lays out a Llama, so that `transformers` reads it too.
"""

import argparse
import csv
import json
import sys
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors.torch import save_file
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.pocket.text import split  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex01_tokens import Tokenizer, train_bpe  # noqa: E402
from solutions.ex09_attention import attention_weights, causal_mask  # noqa: E402
from solutions.ex13_transformer import (  # noqa: E402
    POCKET,
    Transformer,
    count_parameters,
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
from solutions.ex16_pretrained import byte_letters, load_tokenizer, rename  # noqa: E402

END = "<|endoftext|>"
# Steps, sequences in each, their length, and the share of them that is made to repeat.
STAGES = [(1200, 16, 64, 0.75), (400, 8, 128, 0.4), (4000, 4, 512, 0.125)]
STEPS = sum(steps for steps, *_ in STAGES)
WARMUP, FALL = 100, 1400                         # the rate rises, stays, and falls in the last steps
PEAK, FLOOR, WEIGHT_DECAY = 2e-3, 1e-4, 0.1
EVERY = 100                                      # steps between rows of training.csv, and checkpoints
GLANCE = 8192                                    # held-out tokens that such a row is measured on
RUN = HERE / "run"                               # what a stopped run goes on from


def joined(texts: list[str]) -> str:
    return "".join(text + END for text in texts)


def trained_tokenizer(texts: list[str]) -> Tokenizer:
    """Lesson 01's tokenizer of the texts; read from RUN where one was made before."""
    if not (RUN / "tokenizer.json").exists():
        write_tokenizer(Tokenizer(*train_bpe(joined(texts), POCKET.vocab_size, [END]), [END]))
    return load_tokenizer(RUN)


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
    rust.save(str(RUN / "tokenizer.json"))
    (RUN / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END,
        "clean_up_tokenization_spaces": False, "model_max_length": POCKET.max_seq_len}, indent=2) + "\n")


def read(console: Console) -> dict:
    """The tokens of both parts of the text, how many texts and bytes they were; kept in RUN."""
    RUN.mkdir(exist_ok=True)
    if not (RUN / "tokens.pt").exists():
        with console.status("fetching and splitting the text"):
            texts, held_out = split(RUN / "wheels")
        with console.status("training the tokenizer"):
            tokenizer = trained_tokenizer(texts)
        with console.status("encoding the text"):
            parts = {"training": texts, "held out": held_out}
            torch.save({"texts": parts, "tokens": {
                name: torch.tensor(tokenizer.encode(joined(part)), dtype=torch.int16)
                for name, part in parts.items()}}, RUN / "tokens.pt")
    return torch.load(RUN / "tokens.pt")


def faster_in_bfloat16(device: str) -> bool:
    """Whether this machine multiplies matrices faster in bfloat16 than in float32."""
    took = {}
    for dtype in (torch.float32, torch.bfloat16) * 3:       # the last of three rounds counts
        x = torch.ones(2048, 512, dtype=dtype, device=device)
        start = perf_counter()
        (x @ x.T).sum().item()
        took[dtype] = perf_counter() - start
    return took[torch.bfloat16] < took[torch.float32]


def attention_in_float32(model: Transformer) -> None:
    """Torch's attention takes four times as long in bfloat16 as in float32 on a CPU: leave it in float32."""
    def wide(attend):
        def attend_wide(q, k, v, mask=None):
            with torch.autocast(q.device.type, enabled=False):
                return attend(q.float(), k.float(), v.float(), mask)
        return attend_wide
    for block in model.blocks:
        block.attention.attend = wide(block.attention.attend)


def stage(step: int) -> list:
    """Sequences, their length, and the share that repeats."""
    for steps, *what in STAGES:
        if step < steps:
            return what
        step -= steps


def repeating_batch(tokens: torch.Tensor, batch: int, seq: int, share: float, rng: torch.Generator):
    """get_batch's, but a share of the sequences is one short piece, again and again.

    The piece has 4 … seq / 2 tokens: by turns the start of the sequence, or tokens from random places
    of the text. Those cannot be guessed when they come first, and so are not learned from there.
    """
    inputs, targets = get_batch(tokens, batch, seq, rng)
    for row in torch.nonzero(torch.rand(batch, generator=rng) < share).flatten().tolist():
        length = int(torch.randint(4, seq // 2 + 1, (), generator=rng))
        drawn = row % 2 == 0
        piece = inputs[row, :length].clone()
        if drawn:
            piece = tokens[torch.randint(len(tokens), (length,), generator=rng)].long()
        repeated = piece.repeat(seq // length + 2)[:seq + 1]
        inputs[row], targets[row] = repeated[:-1], repeated[1:]
        if drawn:
            targets[row, :length - 1] = IGNORED
    return inputs, targets


def torch_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Lesson 05's loss, by torch's kernel."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def induction(model: Transformer, copies: int = 4, length: int = 64,
              seed: int = 1) -> tuple[float, float, torch.Tensor]:
    """The loss of random tokens and of the same again, and each head's induction score (layers, heads).

    A head's score is the weight it gives, in the second copy, to the token that followed in the first.
    """
    piece = torch.randint(POCKET.vocab_size - 1, (copies, length), generator=torch.Generator().manual_seed(seed))
    ids = piece.repeat(1, 2).to(next(model.parameters()).device)
    losses = F.cross_entropy(model(ids)[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    x, scores = model.embedding(ids), []
    for block in model.blocks:
        q, k, _ = block.attention.project(block.norm1(x))
        weights = attention_weights(q, k.repeat_interleave(q.shape[1] // k.shape[1], dim=1),
                                    causal_mask(ids.shape[1]).to(ids.device))
        scores.append(weights.diagonal(1 - length, dim1=-2, dim2=-1)[..., 1:].mean((0, 2)))
        x = block(x)
    return losses[:, :length - 1].mean().item(), losses[:, length:].mean().item(), torch.stack(scores)


def train(tokens: torch.Tensor, held_out: torch.Tensor, held_out_bytes: int, device: str,
          console: Console) -> Transformer:
    """STEPS steps, from the last checkpoint where there is one; training.csv holds the losses."""
    torch.manual_seed(0)
    model = use_torch_kernels(Transformer(POCKET)).to(device)
    if device == "cpu":
        attention_in_float32(model)
    optimizer = AdamW(parameter_groups(model, WEIGHT_DECAY), PEAK, betas=(0.9, 0.95))
    rng = torch.Generator().manual_seed(0)
    checkpoint, log, start = RUN / "checkpoint", RUN / "training.csv", 0
    if checkpoint.exists():
        start = load_checkpoint(checkpoint, model, optimizer, rng)
    rows = list(csv.reader(log.open()))[1:] if start else []
    rows = [row for row in rows if int(row[0]) <= start]
    read_so_far = int(rows[-1][1]) if rows else 0
    bfloat16 = faster_in_bfloat16(device)
    mixed = torch.autocast(device, torch.bfloat16, enabled=bfloat16)
    console.print(f"{count_parameters(POCKET):,} parameters, {len(tokens):,} tokens; from step {start} to {STEPS} "
                  f"on {device}{', products in bfloat16' if bfloat16 else ''}")
    columns = [TextColumn("step {task.completed}"), BarColumn(), TextColumn("{task.description}"),
               TimeElapsedColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=STEPS, completed=start)
        recent = []
        for step in range(start, STEPS):
            held = min(max(step - WARMUP, 0), STEPS - FALL - WARMUP)      # steps at the peak so far
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step - held, WARMUP, WARMUP + FALL, PEAK, FLOOR)
            batch, seq, share = stage(step)
            inputs, targets = repeating_batch(tokens, batch, seq, share, rng)
            with mixed:
                loss, _ = train_step(model, optimizer, [(inputs.to(device), targets.to(device))],
                                     loss=torch_cross_entropy)
            recent.append(loss)
            read_so_far += batch * seq
            done = step + 1
            progress.update(bar, completed=done, description=f"loss {loss:.3f}")
            if done % EVERY == 0 or done == STEPS:
                glance = held_out[:GLANCE + 1].to(device)
                nats = evaluate(model, glance, POCKET.max_seq_len)
                first, second, scores = induction(model)
                rows.append([done, read_so_far, f"{sum(recent) / len(recent):.4f}", f"{nats:.4f}",
                             f"{bits_per_byte(nats, len(held_out), held_out_bytes):.4f}",
                             f"{first - second:.4f}", f"{scores.max():.4f}"])
                recent = []
                with log.open("w", newline="") as file:
                    csv.writer(file).writerows([["step", "tokens", "training loss", "held-out loss",
                                                 "held-out bits per byte", "gap of the second copy",
                                                 "best induction score"], *rows])
                save_checkpoint(checkpoint, model, optimizer, done, rng)
                progress.console.print(*rows[-1])
    (HERE / "training.csv").write_text(log.read_text())
    return model


def export(model: Transformer) -> None:
    """The tokenizer; config.json and model.safetensors in bfloat16, named as Hugging Face names a Llama's."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (HERE / name).write_bytes((RUN / name).read_bytes())
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
    """The tensors of one of our Llamas by Hugging Face's names: what convert_llama undoes."""
    return rename(state, {
        "embedding": "model.embed_tokens", "blocks": "model.layers", "norm": "model.norm",
        "unembedding": "lm_head", "norm1": "input_layernorm", "attention": "self_attn",
        "norm2": "post_attention_layernorm", "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.up": "mlp.up_proj", "feed_forward.down": "mlp.down_proj"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, help="how many torch may use on a CPU that others use too")
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    console = Console()
    found = read(console)
    tokens, held_out = found["tokens"].values()
    held_out_bytes = len(joined(found["texts"]["held out"]).encode())
    export(train(tokens, held_out, held_out_bytes, asked.device, console))


if __name__ == "__main__":
    main()
