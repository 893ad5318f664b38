"""Runs the experiment that lesson 25 quotes, users who come at random times: 25_steps.csv, 25_load.csv, 25_real.csv.

    python assets/evidence/25_load.py        (or: make evidence)

Rows that are there are kept, so a run that was stopped goes on. The unit of time is a step of the engine in which one
request, of LENGTH positions, gets one token; CPU time, medians of TURNS.

25_steps.csv, measured: what a step takes on the pocket model, by what it computes. kind "decode": a token for each of
so many requests, of so many positions each; "prompt": so many tokens of one request, which has so many positions then.

25_load.csv, counted: a Clock is an Engine whose passes compute nothing, but take a time. cost says which: "measured",
what 25_steps.csv says; "roofline", where all tokens of a step go through one pass, one unit up to ROOFLINE of them and
in proportion above, as on a GPU where only reading the weights and multiplying by them takes time. REQUESTS requests
come at random times (Poisson), load of them in a thousand units of time on average. Contestants, each in the memory of
BLOCKS blocks:

    batch        who comes waits until all who run are finished; most: how many run at once
    reserved     continuous, but each holds room for the longest text there is, so that only few run at once; budget
    continuous   who comes is let in at the next step; most: how many run at once; budget: tokens per step

seed: TUNED_ON are to choose each contestant's setting at each load, SEEDS to report it. throughput: new tokens in a
unit of time, from the first arrival to the last token. p50, p99: percentiles of latency, the time from a request's
arrival to its last token, divided by how many new tokens it gets. first: the 99th percentile of the time to the first
token. preemptions: how many there were. At REAL_LOAD, continuous runs once more at its own most and without a budget.

25_real.csv, measured: the same at one load, with the model. predicted: how long the computing takes by 25_steps.csv;
measured: how long it takes; and p50 and p99 of both.
"""

import sys
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import median
from time import process_time

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from assets.evidence import table  # noqa: E402
from given.torch_kernels import use_torch_kernels  # noqa: E402
from solutions.ex13_transformer import ModelConfig, Transformer  # noqa: E402
from solutions.ex15_generation import Sampling  # noqa: E402
from solutions.ex16_pretrained import load_pretrained  # noqa: E402
from solutions.ex25_serving import Engine, Job, Output, Request, Scheduler  # noqa: E402

STEPS, STEP_COLUMNS = HERE / "25_steps.csv", ["kind", "tokens", "positions", "time"]
LOAD = HERE / "25_load.csv"
COLUMNS = ["cost", "contestant", "most", "budget", "load", "seed", "throughput", "p50", "p99", "first", "preemptions"]
REAL = HERE / "25_real.csv"
REAL_COLUMNS = ["contestant", "load", "seed", "predicted", "measured", "p50 predicted", "p50 measured", "p99 predicted",
                "p99 measured"]
WINDOW, BLOCK_SIZE, BLOCKS, LENGTH, TURNS, REQUESTS = 512, 16, 160, 64, 15, 400
LONGEST, ROOFLINE = 200, 206        # of a prompt, and of an answer; tokens in the time of one (lesson 24)
ROWS, POSITIONS, PROMPTS = (1, 2, 4, 8, 16, 24, 32, 48, 64), (32, 96, 192, 384), (2, 4, 8, 16, 32, 64, 128, 256, 512)
LOADS, SEEDS, TUNED_ON = (20, 40, 60, 80, 100, 120, 140), range(5), range(5, 8)
ROOFLINE_LOADS = (300, 600)
BATCHES, MOST, BUDGETS = (8, 16, 32, 64, 128), (16, 32, 64, 20, 24, 28), (16, 32, 64, 128, 256, 512)
SETTINGS = [*(("batch", most, 10**6) for most in BATCHES),
            *(("reserved", BLOCKS // -(-2 * LONGEST // BLOCK_SIZE), budget) for budget in BUDGETS),
            *(("continuous", most, budget) for most in MOST for budget in BUDGETS)]
NAMES, REAL_LOAD, REAL_REQUESTS = ("batch", "reserved", "continuous"), 60, 60
NO_BUDGET = 10**6
COSTS = [("measured", load) for load in LOADS] + [("roofline", load) for load in ROOFLINE_LOADS]


class BatchByBatch(Scheduler):
    """Lets nobody in while somebody runs."""

    def plan_waiting(self, left: int) -> list[tuple[Job, int]]:
        return [] if self.running else super().plan_waiting(left)


@cache
def model() -> Transformer:
    return use_torch_kernels(load_pretrained(HERE.parent / "pocket", dtype=torch.float32)).eval()


# -- what a step takes

def step_time(kind: str, tokens: int, positions: int) -> float:
    """The median CPU time of a step, in seconds."""
    rows = tokens if kind == "decode" else 1
    engine = Engine(model(), rows * (WINDOW // BLOCK_SIZE + 4), BLOCK_SIZE, 10**6, rows, reuse=False)
    took = []
    for turn in range(TURNS):
        for row in range(rows):
            job = Job(Request(id=(turn, row), prompt=[5] * positions, max_new_tokens=8))
            engine.cache.start(job.id)
            left = 1 if kind == "decode" else tokens
            if positions > left:
                engine.cache.reserve(job.id, positions - left)
            engine.scheduler.running.append(job)
        start = process_time()
        engine.step()
        took.append(process_time() - start)
        for row in range(rows):
            engine.cancel((turn, row))
    return median(took)


@cache
def unit() -> float:
    return step_time("decode", 1, LENGTH)


def step_row(kind: str, tokens: int, positions: int) -> list[list[str]]:
    return [[kind, str(tokens), str(positions), f"{step_time(kind, tokens, positions) / unit():.3f}"]]


STEP_SETTINGS = [*(("decode", rows, positions) for rows in ROWS for positions in POSITIONS),
                 *(("prompt", tokens, positions) for tokens in PROMPTS for positions in sorted({tokens, WINDOW}))]


@cache
def steps() -> dict[str, dict[int, list[tuple[int, float]]]]:
    """25_steps.csv: {kind: {tokens: [(positions, time), …]}}."""
    found: dict[str, dict[int, list[tuple[int, float]]]] = {"decode": {}, "prompt": {}}
    for kind, tokens, positions, time in table.read(STEPS):
        found[kind].setdefault(int(tokens), []).append((int(positions), float(time)))
    return found


def between(x: float, points: list[tuple[float, float]]) -> float:
    """The straight line between the two points beside x; beyond the last one, that through the last two."""
    if len(points) == 1 or x <= points[0][0]:
        return points[0][1]
    at = next((n for n, (end, _) in enumerate(points) if end >= x), len(points) - 1)
    (x1, y1), (x2, y2) = points[at - 1:at + 1]
    return y1 + (y2 - y1) * (x - x1) / (x2 - x1)


@cache
def takes(rows: int, n: int, positions: int) -> float:
    """How long a pass over n tokens of each of these rows takes, the longest having so many positions."""
    kind, tokens = ("decode", rows) if n == 1 else ("prompt", rows * n)
    return between(tokens, [(size, between(positions, points)) for size, points in steps()[kind].items()])


# -- who comes

def requests(seed: int, load: float, count: int = REQUESTS, vocab: int = 2) -> tuple[list[Request], list[float]]:
    """So many requests, and when they come."""
    rng = torch.Generator().manual_seed(seed)
    prompts, news = ((3.6 + 0.8 * torch.randn(count, generator=rng)).exp().clamp(4, LONGEST).int().tolist()
                     for _ in range(2))
    gaps = torch.empty(count, dtype=torch.float64).exponential_(load / 1000, generator=rng).tolist()
    made = [Request(id=id, prompt=torch.randint(vocab, (length,), generator=rng).tolist(), max_new_tokens=new,
                    seed=id, sampling=Sampling(temperature=1.0))
            for id, (length, new) in enumerate(zip(prompts, news, strict=True))]
    return made, list(accumulate(gaps))


class Clock(Engine):
    """An engine whose passes compute nothing; `spent` is the time that they would take."""

    spent, cost, packed = 0.0, "measured", 0

    def step(self) -> list[Output]:
        self.packed = 0
        outputs = super().step()
        if self.packed:
            self.spent += max(1, self.packed / ROOFLINE)
        return outputs

    def forward(self, jobs: list[Job], n: int) -> torch.Tensor:
        if self.cost == "roofline":
            self.packed += len(jobs) * n
        else:
            self.spent += takes(len(jobs), n, max(self.cache.lengths[job.id] for job in jobs))
        return torch.zeros(len(jobs), 1)

    def choose(self, job: Job, logits: torch.Tensor) -> Output:
        job.tokens.append(0)
        return Output(job.id, 0, "length" if job.new_tokens == job.request.max_new_tokens else None)


class Real(Engine):
    """An engine that tells how long its steps took, in units of one request's."""

    spent = 0.0

    def step(self) -> list[Output]:
        start = process_time()
        outputs = super().step()
        self.spent += (process_time() - start) / unit()
        return outputs


def drive(engine: Clock | Real, made: list[Request], arrivals: list[float]) -> dict[str, float]:
    """Add each request when it comes, step while there is something to do, and tell how it went."""
    now, spent, came, first, last = 0.0, 0.0, 0, {}, {}
    while came < len(made) or engine.unfinished:
        if not engine.unfinished:
            now = max(now, arrivals[came])
        while came < len(made) and arrivals[came] <= now:
            engine.add(made[came])
            came += 1
        outputs = engine.step()
        now, spent = now + engine.spent - spent, engine.spent
        for output in outputs:
            first.setdefault(output.id, now)
            last[output.id] = now
    waits = sorted((last[request.id] - at) / request.max_new_tokens for request, at in zip(made, arrivals, strict=True))
    starts = sorted(first[request.id] - at for request, at in zip(made, arrivals, strict=True))
    return {"throughput": sum(request.max_new_tokens for request in made) / (now - arrivals[0]),
            "p50": percentile(waits, 50), "p99": percentile(waits, 99), "first": percentile(starts, 99)}


def percentile(ordered: list[float], percent: float) -> float:
    at = (len(ordered) - 1) * percent / 100
    return between(at, list(enumerate(ordered)))


def engine(kind: type[Engine], network: Transformer, contestant: str, most: int, budget: int) -> Engine:
    made = kind(network, BLOCKS, BLOCK_SIZE, budget, most, reuse=False)
    if contestant == "batch":
        made.scheduler = BatchByBatch(made.cache, budget, most, reuse=False)
    return made


@cache
def nothing() -> Transformer:
    """A model for engines that never ask it."""
    return Transformer(ModelConfig(vocab_size=2, d_model=4, layers=1, heads=1, kv_heads=1, d_ff=4, max_seq_len=WINDOW))


def counted(cost: str, contestant: str, most: int, budget: int, made: list, arrivals: list) -> dict[str, float]:
    clock = engine(Clock, nothing(), contestant, most, budget)
    clock.cost = cost
    return drive(clock, made, arrivals) | {"preemptions": clock.scheduler.preemptions}


def measure(cost: str, contestant: str, most: int, budget: int, load: float, seed: int) -> list[list[str]]:
    found = counted(cost, contestant, most, budget, *requests(seed, load))
    return [[cost, contestant, str(most), str(budget), str(load), str(seed),
             *(f"{found[name]:.4f}" for name in COLUMNS[6:10]), str(found["preemptions"])]]


def best(cost: str, contestant: str, load: float) -> tuple[int, int]:
    """The contestant's (most, budget) at this load: the lowest mean p99 over those to tune on; of equals, the first."""
    found: dict[tuple[int, int], float] = {}
    for by, name, most, budget, at, seed, _, _, p99, *_ in table.read(LOAD):
        if (by, name, at) == (cost, contestant, str(load)) and int(seed) in TUNED_ON:
            found[int(most), int(budget)] = found.get((int(most), int(budget)), 0) + float(p99)
    return min(found, key=found.__getitem__)


def compare(contestant: str, load: float, seed: int) -> list[list[str]]:
    """With the model, and without."""
    made = requests(seed, load, REAL_REQUESTS, model().config.vocab_size)
    pair = [engine(kind, network, contestant, *best("measured", contestant, load))
            for kind, network in ((Clock, nothing()), (Real, model()))]
    pair[0].model = model()          # whose vocabulary the prompts are from; it is not asked
    found = [drive(one, *made) for one in pair]
    return [[contestant, str(load), str(seed), *(f"{one.spent:.1f}" for one in pair),
             *(f"{one[name]:.3f}" for name in ("p50", "p99") for one in found)]]


def main() -> None:
    torch.set_num_threads(1)
    table.resume(STEPS, STEP_COLUMNS, STEP_SETTINGS, step_row)
    table.resume(LOAD, COLUMNS, [(cost, *setting, load, seed) for cost, load in COSTS for setting in SETTINGS
                                 for seed in TUNED_ON], measure)
    chosen = [(cost, name, *best(cost, name, load), load, seed) for cost, load in COSTS for name in NAMES
              for seed in SEEDS]
    chosen += [("measured", "continuous", best("measured", "continuous", REAL_LOAD)[0], NO_BUDGET, REAL_LOAD, seed)
               for seed in SEEDS]
    table.resume(LOAD, COLUMNS, chosen, measure)
    table.resume(REAL, REAL_COLUMNS, [(name, REAL_LOAD, seed) for name in ("batch", "continuous") for seed in SEEDS],
                 compare)


if __name__ == "__main__":
    main()
