"""What the ranks of chapter 26's parity test do, as threads or under torchrun:

    torchrun … tests/course/parity/ranks_ex26_many_devices.py parity|failures FOLDER

Each process writes what it found into FOLDER, as JSON.
"""

import copy
import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from given.ranks import Group, RankFailed, torch_group  # noqa: E402
from solutions import ex26_many_devices as chapter  # noqa: E402
from solutions.ex05_softmax import cross_entropy  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402
from solutions.ex14_training import AdamW  # noqa: E402

CONFIG = ModelConfig(vocab_size=16, d_model=8, layers=2, heads=4, kv_heads=2, d_ff=12, max_seq_len=16)
STEPS, RATE, NUMBER = 3, 0.05, 8        # bytes of a float64


def a_model() -> tuple[Transformer, torch.Tensor, torch.Tensor]:
    """The same model, inputs and targets wherever it is called."""
    torch.manual_seed(0)
    model = Transformer(CONFIG).double()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(std=0.5)
    return model, *torch.randint(CONFIG.vocab_size, (2, 4, 6))


def train(model: nn.Module, optimizer, inputs, targets) -> tuple[list[float], list[float]]:
    """Losses of a few steps, and the numbers that the optimizer then holds, all together."""
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def weights(model: nn.Module) -> list[float]:
    return chapter.flatten(list(model.parameters())).tolist()


def one_process() -> dict:
    """What all others are held to: losses, gradients and weights of the whole batch."""
    model, inputs, targets = a_model()
    cross_entropy(model(inputs), targets).backward()
    gradients = chapter.flatten([p.grad for p in model.parameters()]).tolist()
    losses = train(model, AdamW(model.parameters(), lr=RATE), inputs, targets)
    return {"gradients": gradients, "losses": losses, "weights": weights(model)}


def everything(group: Group) -> dict:
    """Each split of the chapter: its numbers, and bytes as counted and as predicted, the sum over all ranks."""
    found, size = {}, group.size

    def counted(before: int) -> int:
        return sum(group.everyones(group.bytes_sent - before))

    def mean(losses: list[float]) -> list[float]:
        return [sum(column) / size for column in zip(*group.everyones(losses))]

    model, inputs, targets = a_model()
    rows = chapter.shard_batch(inputs, group), chapter.shard_batch(targets, group)
    all_bytes = NUMBER * sum(p.numel() for p in model.parameters())

    before = group.bytes_sent
    chapter.ring_all_reduce(torch.ones(37, dtype=torch.float64), group)
    found["ring"] = {"bytes": counted(before), "predicted": size * chapter.all_reduce_bytes(37 * NUMBER, size)}

    wrapped = chapter.DataParallel(copy.deepcopy(model), group, bucket_bytes=1000)
    before = group.bytes_sent
    cross_entropy(wrapped(rows[0]), rows[1]).backward()
    found["data"] = {"gradients": chapter.flatten([p.grad for p in wrapped.parameters()]).tolist(),
                     "bytes": counted(before), "predicted": size * chapter.step_bytes("data", all_bytes, size)}
    losses = train(wrapped, AdamW(wrapped.parameters(), lr=RATE), *rows)
    found["data"] |= {"losses": mean(losses), "weights": weights(wrapped)}

    sharded = copy.deepcopy(model)
    optimizer, before = chapter.ShardedAdamW(sharded.parameters(), group, lr=RATE), group.bytes_sent
    losses, norms = train(sharded, optimizer, *rows), STEPS * chapter.all_reduce_bytes(NUMBER, size)
    found["zero1"] = {"losses": mean(losses), "weights": weights(sharded), "bytes": counted(before),
                      "predicted": size * (STEPS * chapter.step_bytes("zero1", all_bytes, size) + norms)}

    fully = chapter.fully_sharded(copy.deepcopy(model), group)
    before = group.bytes_sent
    losses = train(fully, AdamW(fully.parameters(), lr=RATE), *rows)
    found["zero3"] = {"losses": mean(losses), "bytes": counted(before),
                      "predicted": size * STEPS * chapter.step_bytes("zero3", all_bytes, size)}

    tensor = copy.deepcopy(model)
    for block in tensor.blocks:
        chapter.tensor_parallel(block, group)
    before, kept = group.bytes_sent, inputs.numel() * NUMBER
    logits = tensor(inputs)
    own = logits.tensor_split(size, -1)[group.rank]
    between = group.bytes_sent
    loss = chapter.vocab_parallel_cross_entropy(own, targets, group)
    found["vocabulary"] = {"bytes": counted(between), "predicted": size * 3 * chapter.all_reduce_bytes(kept, size)}
    cross_entropy(logits, targets).backward()
    activations = kept * CONFIG.d_model
    found["tensor"] = {
        "losses": [loss.item()], "norm": tensor.blocks[0].norm1.weight.grad.tolist(),
        "bytes": counted(before) - found["vocabulary"]["bytes"],
        "predicted": size * chapter.tensor_parallel_bytes(CONFIG.layers, activations, size)}
    found["tensor"]["whole norm"] = whole_norm()

    layers = [nn.Linear(5, 5).double() for _ in range(size)]
    for n, layer in enumerate(layers):
        for p in layer.parameters():
            p.data = torch.arange(p.numel(), dtype=torch.float64).cos().view(p.shape) + n
    parts = [torch.arange(10, dtype=torch.float64).sin().view(2, 5) * n for n in range(1, 6)]
    loss = sum(nn.functional.mse_loss(nn.Sequential(*layers)(x), -x) for x in parts) / len(parts)
    loss.backward()
    whole = [layer.weight.grad.flatten().tolist() for layer in layers]
    layers[group.rank].zero_grad()
    before, schedule = group.bytes_sent, chapter.one_f_one_b(group.rank, size, len(parts))
    said = chapter.run_pipeline(layers[group.rank], group, schedule, parts, [-x for x in parts], nn.functional.mse_loss)
    sent = chapter.pipeline_bytes(group.rank, size, len(parts), 10 * NUMBER)
    found["pipeline"] = {"losses": [group.everyones(said)[-1]], "whole losses": [loss.item()],
                         "gradients": layers[group.rank].weight.grad.flatten().tolist(),
                         "whole gradients": whole[group.rank], "bytes": counted(before),
                         "predicted": sum(group.everyones(sent))}
    return found


def whole_norm() -> list[float]:
    """The gradient of a norm of the whole model."""
    model, inputs, targets = a_model()
    cross_entropy(model(inputs), targets).backward()
    return model.blocks[0].norm1.weight.grad.tolist()


def theirs(group: Group) -> dict:
    """The same steps by torch's DistributedDataParallel and fully_shard."""
    from torch.distributed.fsdp import fully_shard
    model, inputs, targets = a_model()
    rows, found = (chapter.shard_batch(inputs, group), chapter.shard_batch(targets, group)), {}
    ddp = nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    cross_entropy(ddp(rows[0]), rows[1]).backward()
    found["DDP"] = {"gradients": chapter.flatten([p.grad for p in ddp.parameters()]).tolist()}
    losses = train(ddp, torch.optim.AdamW(ddp.parameters(), lr=RATE, weight_decay=0.01), *rows)
    found["DDP"] |= {"losses": losses, "weights": weights(ddp)}
    full = copy.deepcopy(model)
    for block in full.blocks:
        fully_shard(block)
    fully_shard(full)
    losses = train(full, torch.optim.AdamW(full.parameters(), lr=RATE, weight_decay=0.01), *rows)
    found["fully_shard"] = {"losses": losses, "weights": torch.cat(
        [p.full_tensor().flatten() for p in full.parameters()]).tolist()}
    for by in found.values():
        by["losses"] = [sum(column) / group.size for column in zip(*group.everyones(by["losses"]))]
    return found


def failures(group: Group) -> dict:
    """What this rank is told of a shape that differs, and of a rank whose process ends."""
    said = {}
    try:
        chapter.ring_all_reduce(torch.ones(5 + (group.rank == 1)), group)
    except ValueError as error:
        said["uneven"] = str(error)
    if group.rank == 1:
        os._exit(3)
    try:
        group.recv(1)
    except RankFailed as error:
        said["gone"] = str(error)
    return said


def main() -> None:
    what, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    with torch_group() as group:
        said = {"ours": everything(group), "theirs": theirs(group)} if what == "parity" else failures(group)
        (folder / f"{group.rank}.json").write_text(json.dumps(said), "utf-8")


if __name__ == "__main__":
    main()
