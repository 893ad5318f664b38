"""Which edits of a solution differ from it on a valid input: random ones are tried, and the smallest is told.

    python -m tests.course.checks.holes CHAPTER …      does a scenario find nothing where nothing is edited?

`mutants` asks it of the edits that no check notices. What each part may be given stands in configurations/, a file
per chapter; a part without a scenario there is given what its signature says.
"""

import contextlib
import importlib
import importlib.util
import inspect
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import SOLUTIONS, Chapter

PACKAGE = "reference"
CONFIGURATIONS = 200
PATIENCE = 0.3, 20  # seconds of computing for an edited part, and how often the reference's: else it does not end
SEARCH = 30  # seconds of computing for the configurations of a scenario, or for the smallest that fails
LIMIT = 1200  # seconds by the clock for one edit, after which its process is stopped


@dataclass
class Found:
    """What came of an edit: where it differs and by which input, or after how many configurations it did not."""

    scenario: str = ""
    differs: str = ""
    told: tuple[str, ...] = ()
    tried: int = 0
    drawn: bool = True


class Endless(Exception):
    """An edited part did not end."""


class Hole(Exception):
    """An edited part differs."""


def load(chapter: Chapter, file: Path, name: str) -> types.ModuleType:
    """A solution, with types and shapes checked; its prerequisites are the reference's."""
    from beartype._cache.cacheclear import clear_caches

    from grader.course import shapes
    from grader.course.loader import install

    if PACKAGE not in sys.modules:
        package = sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
        package.__path__ = [os.devnull]
        install(PACKAGE, lambda stem: str(SOLUTIONS))
    shapes.settle()
    clear_caches()  # it would take one file's classes for the other's of that name
    spec = importlib.util.spec_from_file_location(
        f"{PACKAGE}.{name}", file, loader=shapes.CheckedLoader(f"{PACKAGE}.{name}", str(file))
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def scenarios(chapter: Chapter, impl: types.ModuleType) -> dict[str, tuple[Callable, set[str]]]:
    """The scenarios of a chapter by their names, each with the parts that it uses."""
    parts, found = _parts(impl), {}
    file = Path(__file__).parent / "configurations" / f"{chapter.stem}.py"
    if file.is_file():
        spec = importlib.util.spec_from_file_location(f"configurations_{chapter.stem}", file)
        written = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(written)
        for name, thing in vars(written).items():
            if inspect.isfunction(thing) and list(inspect.signature(thing).parameters) == ["impl", "draw"]:
                found[name] = thing, names_used(thing.__code__, vars(written)) & parts
    for name in sorted(parts.difference(*(used for _, used in found.values()))):
        if name[0] != "_":
            found[name] = by_signature(name), {name}
    return found


def _parts(impl: types.ModuleType) -> set[str]:
    """The functions and classes that a chapter makes."""
    return {name for name, part in vars(impl).items()
            if getattr(part, "__module__", "") == impl.__name__ and callable(part)}


def names_used(code, around: dict) -> set[str]:
    """The names that a function uses, itself or through functions of its own file; these may be called as parts are."""
    known, left = [], [code]
    while left:
        known.append(inner := left.pop())
        called = [getattr(around.get(name), "__code__", None) for name in inner.co_names]
        left += [one for one in (*inner.co_consts, *called) if inspect.iscode(one) and one not in known]
    return {name for inner in known for name in inner.co_names}


def by_signature(name: str) -> Callable:
    """A scenario for a function or a module whose signature says what it may be given; for others it finds nothing."""
    def scenario(impl, draw):
        part = getattr(impl, name)
        if inspect.isclass(part):
            module = draw.module(part, **draw.arguments(part.__init__))
            draw.asked(module, **draw.arguments(part.forward))
        else:
            draw.asked(part, **draw.arguments(part))

    return scenario


@dataclass
class Example:
    """A valid configuration: what was drawn, in words too, and what the reference made of it."""

    record: list
    told: list[str]
    seen: list
    seconds: float


def examples(
    scenario: Callable,
    reference,
    configurations: int = CONFIGURATIONS,
    refused: dict | None = None,
    fails: Callable[[Example], bool] = lambda _: False,
) -> list[Example]:
    """Valid configurations, as many if so many are found; or one, the smallest that fails.

    What the reference refuses is none. `refused`: where its reasons are counted.
    """
    from hypothesis import HealthCheck, Phase, given, reject, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky, HypothesisException, Unsatisfiable

    from tests.course.checks.drawn import Draw

    found, failed, start = {}, {}, time.process_time()

    @st.composite
    def valid(draw):
        record = []

        def drawn(strategy):
            record.append(draw(strategy))
            return record[-1]

        right, begun = Draw(drawn), time.process_time()
        try:
            _run(scenario, reference, right)
        except HypothesisException:
            raise
        except Exception as error:
            if refused is not None:
                words = f"{type(error).__name__}: {error}"[:150]
                refused[words] = refused.get(words, 0) + 1
            reject()
        return Example(record, right.told, right.seen, time.process_time() - begun)

    @settings(
        max_examples=configurations,
        database=None,
        derandomize=True,
        deadline=None,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(valid())
    def ask(example):
        key, late = str(example.record), time.process_time() - start > SEARCH
        if key in found and key not in failed or late and key not in failed:
            return
        found[key] = example
        if key in failed or fails(example):
            failed.pop(key, None)
            failed[key] = example
            raise Hole

    with contextlib.suppress(Hole, Flaky, Unsatisfiable), contextlib.redirect_stdout(None):
        ask()
    return [list(failed.values())[-1]] if failed else list(found.values())


def difference_of(scenario: Callable, edited, example: Example) -> str:
    """Where an edited solution differs in a configuration, in words; "" where it does not."""
    from tests.course.checks.drawn import Draw, difference

    again = iter(example.record)
    mine = Draw(lambda strategy: next(again))
    try:
        with _limited(PATIENCE[0] + PATIENCE[1] * example.seconds):
            _run(scenario, edited, mine)
    except Endless:
        return "does not end"
    except Exception as error:
        return f"raises {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:200]
    for (label, a), (other, b) in zip(mine.seen, example.seen):
        if text := difference(a, b, label) if label == other else f"{label} for {other}":
            return text
    return "other results" if len(mine.seen) != len(example.seen) else ""


def differs(scenario: Callable, reference, edited, known: list[Example]) -> Found:
    """Where an edited solution differs from the reference, by the smallest input that was found."""
    for number, example in enumerate(known, 1):
        if difference_of(scenario, edited, example):
            [smallest] = examples(
                scenario, reference, len(known) + 20, fails=lambda one: bool(difference_of(scenario, edited, one))
            )[:1]
            if not (said := difference_of(scenario, edited, smallest)):
                smallest, said = example, difference_of(scenario, edited, example)
            return Found("", said, tuple(smallest.told), number)
    return Found(tried=len(known))


def _run(scenario, impl, draw):
    import torch

    torch.default_generator.manual_seed(0)
    torch.set_grad_enabled(True)
    before = torch.get_default_dtype()
    torch.set_default_dtype(draw("default dtype", (torch.float32,) * 5 + (torch.float64,), told=False))
    if torch.get_default_dtype() != torch.float32:
        draw.told.append("default dtype: float64")
    try:
        scenario(impl, draw)
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_):
        raise Endless

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _search(chapter: Chapter, reference, chosen: dict[str, tuple], source: str, answer):
    """In a process of its own: try an edit in each of these scenarios."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{chapter.stem}.py"
        file.write_text(source, "utf-8")
        try:
            edited, tried = load(chapter, file, f"{chapter.stem}_edited"), 0
        except Exception as error:
            answer.send(Found("import", f"raises {type(error).__name__}: {error}"))
            return
        for name, (scenario, known) in chosen.items():
            found = differs(scenario, reference, edited, known)
            tried += found.tried
            if found.differs:
                found.scenario = name
                answer.send(found)
                return
        answer.send(Found(tried=tried))


def _serve(number: str, configurations: int):
    """Answer for one edit after the other, each in a fork: no edit harms the next."""
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
    chapter = chapters.find(number)
    reference = load(chapter, chapter.solution, chapter.stem)
    asked, fork, known = scenarios(chapter, reference), multiprocessing.get_context("fork"), {}
    for line in sys.stdin:
        source, part = json.loads(line)
        name = part.partition(".")[0]
        chosen = [key for key, (_, used) in asked.items() if name in used]
        if not chosen:      # a helper, a constant or a kernel: of any part
            chosen = list(asked)
        for key in chosen:
            if key not in known:
                known[key] = asked[key][0], examples(asked[key][0], reference, configurations)
        given = {key: known[key] for key in chosen if known[key][1]}
        found = _in_a_fork(fork, chapter, reference, given, source) if given else Found(drawn=False)
        print(json.dumps(vars(found)), flush=True)


def _in_a_fork(fork, *given) -> Found:
    mine, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_search, args=(*given, theirs))
    process.start()
    theirs.close()
    found = Found("", f"dies, or does not end within {LIMIT} s")
    with contextlib.suppress(EOFError):
        if mine.poll(LIMIT):
            found = mine.recv()
    process.kill()
    process.join()
    return found


class Searcher:
    """Looks for holes in a chapter's edits, one after the other; to be used in a with statement."""

    def __init__(self, chapter: Chapter, configurations: int = CONFIGURATIONS):
        self._command = [
            sys.executable,
            "-m",
            "tests.course.checks.holes",
            "--serve",
            chapter.number,
            str(configurations),
        ]

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()

    def find(self, source: str, part: str) -> Found:
        """Where an edited source differs from the reference; `part`: what was edited, such as "KVCache.update"."""
        print(json.dumps([source, part]), file=self._process.stdin, flush=True)
        return Found(**json.loads(self._process.stdout.readline()))


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        _serve(sys.argv[2], int(sys.argv[3]))
        return
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        chapter = chapters.find(name)
        reference = load(chapter, chapter.solution, chapter.stem)
        again = load(chapter, chapter.solution, f"{chapter.stem}_again")
        for key, (scenario, used) in scenarios(chapter, reference).items():
            refused = {}
            known = examples(scenario, reference, refused=refused)
            found = differs(scenario, reference, again, known)
            print(f"{chapter.stem}, {key}: {len(known)} configurations of {', '.join(sorted(used))}", flush=True)
            print(*(f"    {line}" for line in [found.differs, *found.told] if line), sep="\n", end="")
            for words, times in sorted(refused.items(), key=lambda item: -item[1])[:3]:
                print(f"    refused {times}: {words}")


if __name__ == "__main__":
    main()
