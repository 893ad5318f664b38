"""Trains a model of lesson 13 on several processes, or GPUs, or machines, with torch's own engine.

    torchrun --nproc-per-node 2 -m assets.pocket.train_sharded RUN --steps 20

fully_shard splits weights, gradients and the optimizer's state between the ranks, as lesson 26's Sharded does.
torch.distributed.checkpoint writes each rank's piece into RUN, and reads the pieces back on any other number of ranks:
the same command goes on after the last checkpoint. A batch and its order do not depend on how many ranks there are, so
neither does the loss. On several machines, torchrun's --nnodes, --node-rank and --rdzv-endpoint say where they are.
"""

import argparse
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import POCKET, Transformer  # noqa: E402
from solutions.ex14_training import get_batch, learning_rate, parameter_groups  # noqa: E402
from solutions.ex16_pretrained import load_pretrained, load_tokenizer  # noqa: E402

TINY = replace(POCKET, d_model=32, layers=2, heads=4, kv_heads=2, head_dim=8, d_ff=48)
CONFIGS = {"pocket": POCKET, "tiny": TINY}
MADE_WITH = ("model", "text", "batch", "seq", "steps", "rate", "seed")      # what a run that goes on must share


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node N -m assets.pocket.train_sharded",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="its folder, with checkpoints and losses.csv; goes on if it exists")
    parser.add_argument("--model", choices=("pretrained", *CONFIGS), default="pretrained",
                        help="pretrained: the pocket model as it is; pocket, tiny: begun anew (default: pretrained)")
    parser.add_argument("--text", type=Path, default=HERE.parent.parent / "README.md", help="what it reads")
    parser.add_argument("--steps", type=int, default=20, help="of the whole run (default: 20)")
    parser.add_argument("--until", type=int, help="stop after this step; the rate is planned for all steps")
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints (default: 10)")
    parser.add_argument("--batch", type=int, default=12, help="sequences of a step, on all ranks (default: 12)")
    parser.add_argument("--seq", type=int, default=128, help="tokens of a sequence (default: 128)")
    parser.add_argument("--rate", type=float, default=3e-4, help="the largest learning rate (default: 0.0003)")
    parser.add_argument("--seed", type=int, default=0, help="of the batches, and of a model begun anew (default: 0)")
    return parser.parse_args()


def check(asked: argparse.Namespace, ranks: int) -> None:
    """Raise ValueError, the same on all ranks, where the options make no sense."""
    for name in ("steps", "every", "batch", "seq"):
        if getattr(asked, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(asked, name)}")
    if not asked.rate > 0:
        raise ValueError(f"--rate must be above 0, got {asked.rate}")
    if asked.batch % ranks:
        raise ValueError(f"--batch must be a multiple of the {ranks} ranks, so that each has as many sequences, "
                         f"got {asked.batch}")
    if asked.seq > POCKET.max_seq_len:
        raise ValueError(f"--seq must be at most {POCKET.max_seq_len}, the model's max_seq_len, got {asked.seq}")
    if not asked.text.is_file():
        raise ValueError(f"--text must be a file, got {asked.text}")


def settings(asked: argparse.Namespace) -> dict:
    """What a run was begun with, as run.json keeps it."""
    return {name: str(value.resolve()) if isinstance(value := getattr(asked, name), Path) else value
            for name in MADE_WITH}


def begin_or_go_on(asked: argparse.Namespace) -> int:
    """The step of the last whole checkpoint, 0 for a new run.

    Raises ValueError where the run was begun with other options.
    """
    file, wanted = asked.run / "run.json", settings(asked)
    if file.exists():
        begun = json.loads(file.read_text("utf-8"))
        if other := [f"--{name} {begun.get(name)}" for name in MADE_WITH if begun.get(name) != wanted[name]]:
            raise ValueError(f"{asked.run} was begun with {', '.join(other)}: give the same, or another folder")
    elif asked.run.exists() and any(asked.run.iterdir()):
        raise ValueError(f"{asked.run} holds no run, but other files: give another folder")
    dist.barrier()      # all have looked
    if dist.get_rank() == 0 and not file.exists():
        asked.run.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(wanted, indent=2), "utf-8")
    whole = [int(found[1]) for folder in asked.run.glob("step-*") if (folder / ".metadata").exists()
             and (found := re.fullmatch(r"step-(\d+)", folder.name))]       # .metadata is written last
    step = torch.tensor(max(whole, default=0), device=device())
    dist.broadcast(step, 0)
    return int(step)


def device() -> torch.device:
    """This rank's GPU, or the CPU."""
    return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")


def make_model(asked: argparse.Namespace) -> nn.Module:
    """The model, the same on all ranks, and then split: each block a unit, and the rest."""
    torch.manual_seed(asked.seed)
    model = load_pretrained(HERE) if asked.model == "pretrained" else Transformer(CONFIGS[asked.model])
    model.to(device(), torch.float32)
    mesh = init_device_mesh(device().type, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def rows_of_step(tokens: torch.Tensor, step: int, asked: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's sequences of a step: every rank draws the whole batch, and takes its share."""
    rng = torch.Generator().manual_seed(asked.seed * 1_000_003 + step)
    inputs, targets = get_batch(tokens, asked.batch, asked.seq, rng)
    rank, share = dist.get_rank(), asked.batch // dist.get_world_size()
    return tuple(x[rank * share:(rank + 1) * share].to(device()) for x in (inputs, targets))


def save(asked: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    weights, states = get_state_dict(model, optimizer)
    checkpoint.save({"model": weights, "optimizer": states}, checkpoint_id=asked.run / f"step-{step}")


def load(asked: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Each rank reads, out of the pieces that are there, what its own piece needs."""
    weights, states = get_state_dict(model, optimizer)
    checkpoint.load({"model": weights, "optimizer": states}, checkpoint_id=asked.run / f"step-{step}")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=states)


def train(asked: argparse.Namespace) -> None:
    check(asked, dist.get_world_size())
    tokens = torch.tensor(load_tokenizer(HERE).encode(asked.text.read_text("utf-8")))
    if len(tokens) <= asked.seq:
        raise ValueError(f"--text must have more than --seq = {asked.seq} tokens, got {len(tokens)}")
    done = begin_or_go_on(asked)
    model = make_model(asked)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=asked.rate)
    if done:
        load(asked, model, optimizer, done)
    first, file = dist.get_rank() == 0, asked.run / "losses.csv"
    if first:
        print(f"{dist.get_world_size()} ranks, " + (f"going on after step {done}" if done else "from the start"))
        kept = file.read_text("utf-8").splitlines(True)[:done] if file.exists() else []
        file.write_text("".join(kept), "utf-8")
    until = min(asked.steps, asked.until or asked.steps)
    for step in range(done + 1, until + 1):
        inputs, targets = rows_of_step(tokens, step, asked)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step - 1, min(5, asked.steps), asked.steps, asked.rate, 0.1 * asked.rate)
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()                 # gathers, and reduce-scatters the mean gradient, block by block
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if first:
            mean = mean.item() / dist.get_world_size()
            print(f"step {step:4}  loss {mean:.4f}", flush=True)
            with file.open("a", encoding="utf-8") as losses:
                losses.write(f"{step},{mean!r}\n")
        if step % asked.every == 0 or step == until:
            save(asked, model, optimizer, step)
    dist.barrier()      # nobody leaves while another still sends


def main() -> int:
    asked = options()
    if "RANK" not in os.environ:
        print("start it with torchrun: torchrun --nproc-per-node 2 -m assets.pocket.train_sharded RUN", file=sys.stderr)
        return 2
    if torch.cuda.is_available():
        torch.cuda.set_device(device())
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        train(asked)
    except (ValueError, OSError) as error:      # the same on every rank: said once
        if dist.get_rank() == 0:
            print(f"train_sharded: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)      # all is written; where gloo's threads are torn down, one run in thirty on busy CPUs aborts
