"""The untrusted side: load a submission, run a check on it, send what came out.

A worker is a forked child of the zygote, or a fresh process where forking is not safe. It
holds the student's module and the checks' code, and no expected value, reference or verdict.
"""

import ast
import contextlib
import faulthandler
import importlib
import os
import random
import re
import sys
import types
from pathlib import Path

import numpy
import torch

from grader.course import checks, loader, shapes, stubs
from grader.course.draw import Draw, seed_of
from grader.course.lent import Lent
from grader.course.loader import PACKAGE
from grader.sandbox import explain, forbidden, jail, wire
from grader.sandbox.frames import channel, read_frame, write_frame
from grader.sandbox.setting import EARLY

MAX_FRAMES = 20             # lines of a traceback

# What a file may set for the whole process, and a run on a GPU depends on, as it was at first.
FLAGS = [(holder, name, getattr(holder, name)) for holder, names in (
    (torch.backends.cuda.matmul, ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation",
                                  "allow_bf16_reduced_precision_reduction")),
    (torch.backends.cudnn, ("allow_tf32", "deterministic", "benchmark"))) for name in names]


def main(limit: bool = False, serve=None) -> None:
    """Answer requests on standard input until it ends; all prints go to standard error.

    limit: take no more than jail.MEMORY, from now on.
    """
    if limit:
        limit_memory()
    requests, replies = channel()
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, encoding="utf-8", errors="replace", newline="\n",
                                   closefd=False) for number in (1, 2))     # on Windows it is neither by default
    sys.dont_write_bytecode = True
    faulthandler.enable(2)
    serve = serve or LoadedChapters().serve
    try:
        while True:
            header, body = read_frame(requests)
            reply, content = serve(header["do"], header["with"], body)
            write_frame(replies, {**reply, "id": header["id"]}, content)
    except (EOFError, BrokenPipeError):
        os._exit(0)


def limit_memory() -> None:
    """Let this process take jail.MEMORY more than it has; best effort, Linux only."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource
        used = int(re.search(r"VmData:\s+(\d+)", Path("/proc/self/status").read_text("utf-8"))[1]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (used + jail.MEMORY, used + jail.MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))        # at 0 a pipe would still be given its memory


AHEAD: dict[str, types.ModuleType] = {}     # files of checks that this process was forked with, by their paths


def load_ahead(tests: list[str], folders: list[list[str]]) -> None:
    """In a zygote: load what all submissions to a chapter share, its checks and the chapters that it builds on.

    What fails here fails again in the worker, which says so.
    """
    for path in tests:
        with contextlib.suppress(Exception):
            AHEAD[path] = checks.load(Path(path))
    _open_package(dict(folders), {}, os.devnull)
    for stem, _ in folders:
        with contextlib.suppress(Exception):
            importlib.import_module(f"{PACKAGE}.{stem}")
    shapes.settle()


def _uncompiled(model=None, **_):
    """In place of torch.compile, which takes longer than all checks and cannot see through types that are checked."""
    return (lambda function: function) if model is None else model


def _open_package(folders: dict[str, str], lent: dict[str, Lent], fallback: str) -> None:
    """Have exercises.exNN_name mean the file in its folder, any other name one in `fallback`."""
    package = sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
    package.__path__, package.folders = [fallback], folders
    loader.install(PACKAGE, folders.get, lent.get)


class LoadedChapters:
    """What a worker serves: a student's file, or many known mistakes, each by its name."""

    def __init__(self):
        self.loaded: dict[str, LoadedChapter] = {}

    def serve(self, do: str, arguments: dict, body: bytes) -> tuple[dict, bytes]:
        name = arguments.pop("name")
        match do:
            case "start":
                torch.zeros(1, device=arguments["device"]).sum().item()     # a GPU's context takes seconds
                return {}, b""
            case "probe":
                return {"layers": jail.attempts(**arguments)}, b""
            case "scan":
                self.loaded[name] = LoadedChapter(**arguments)
                return self.loaded[name].scan(), b""
            case "load":
                return self.loaded[name].load(**arguments), b""
            case "ask":
                return self.loaded[name].ask(**arguments)
        raise ValueError(f"unknown request {do!r}")


class LoadedChapter:
    """One submission's module and the checks to ask of it."""

    def __init__(self, chapter: str, folders: dict, lent: dict, fallback: str, tests: list, parts: list, device: str):
        """See setting.scan_request. The checks' files are loaded; nothing of the submission is."""
        self.chapter, self.folders, self.fallback = chapter, folders, fallback
        self.file, self.device, self.impl = Path(folders[chapter]) / f"{chapter}.py", device, None
        self.lent = {stem: Lent(frozenset(names), Path(solution)) for stem, (solution, names) in lent.items()}
        self.tests: dict[str, types.ModuleType] = {}
        self.bans: dict[str, set[str]] = {}
        self.parameters: set[str] = set()
        self.source = ""
        torch.compile = _uncompiled
        if device == "cpu":     # where there is a GPU too, its kernels shall run here; read as Triton is imported
            os.environ["TRITON_INTERPRET"] = "1"
        for test in tests:
            module = self.tests[test["file"]] = AHEAD.get(test["path"]) or checks.load(Path(test["path"]))
            bans = getattr(module, "FORBIDDEN", {})
            for part, names in (bans if isinstance(bans, dict) else dict.fromkeys(parts, bans)).items():
                self.bans[part] = self.bans.get(part, set()) | names
        others = [str(Path(folder) / f"{stem}.py") for stem, folder in folders.items() if stem != chapter]
        others += [str(other.solution) for other in self.lent.values()]
        self._asked = None      # the check that is being asked
        self.watch = forbidden.Watch(self.bans, self.file, parts, [*(test["path"] for test in tests), *others],
                                     lambda: self._asked and checks.names(self._asked))

    def scan(self) -> dict:
        """Before any of the student's code runs: what the text of the submission names."""
        try:
            self.source = stubs.text_of(self.file.read_bytes())
            text = forbidden.Text(ast.parse(self.source))
            self.parameters = {node.arg for node in text.nodes if isinstance(node, ast.arg)}
            self.watch.read(text)
            found = forbidden.uses(text, self.bans)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return {}       # loading it will say what is wrong
        return {"forbidden": found} if found else {}

    def load(self, patience: float = 0) -> dict:
        """Import the submission; nothing where it succeeds, else what it raised, and what it borrowed meanwhile."""
        failed = {}
        try:
            with _stack_printed(patience), self.watch:
                self.load_here()
        except BaseException as error:
            failed = self._raised(error)
        return {**failed, **({"forbidden": self.watch.seen} if self.watch.seen else {})}

    def load_here(self) -> None:
        """Import the submission as exercises.exNN_name; its prerequisites come along.

        Another file's prerequisites are used again where they are the same files.
        """
        if another := sys.modules.get(PACKAGE):
            loaded = {name.rpartition(".")[2] for name in sys.modules if name.startswith(PACKAGE + ".")}
            if all(another.folders.get(stem) == self.folders.get(stem) for stem in loaded - {self.chapter}):
                loaded = {stem for stem in loaded if stem >= self.chapter}      # later ones hold this one's old classes
            if loaded or self.chapter in another.folders:
                shapes.settle()
            for stem in loaded:
                del sys.modules[f"{PACKAGE}.{stem}"]
            if loaded or self.chapter in another.folders:
                from beartype._cache.cacheclear import clear_caches
                clear_caches()      # it would take this file's classes for the other's of that name
        _open_package(self.folders, self.lent, self.fallback)
        self.impl = importlib.import_module(f"{PACKAGE}.{self.chapter}")

    def prepare(self, function: str, dtype: str | None, seed: int, exact: bool = False):
        """The draw and the dtype arguments of a check, with the process in its initial state."""
        seed = seed_of(seed, self.chapter, function)
        self._settle(seed)
        given = getattr(torch, dtype or "float32")
        return (Draw(seed, self.device, given if exact else None),
                [torch.float64 if exact else given] if dtype else [])

    def ask(self, file: str, function: str, dtype: str | None, seed: int, exact=False, patience: float = 0):
        """Run one check. `exact` asks it in float64, which is what tolerances are measured by.

        patience: seconds after which somebody stops waiting; shortly before, the stack is printed.
        """
        draw, arguments = self.prepare(function, dtype, seed, exact)
        check = self._asked = getattr(self.tests[file], function)
        try:
            with _stack_printed(patience), self.watch:
                answer = check(self.impl, draw, *arguments)
                if self.device == "cuda":
                    torch.cuda.synchronize()    # an error of this check must not meet the next one
            if not self.watch.seen:
                tree, body = wire.encode(answer, draw.storages())
                return {"answer": tree, "changed": draw.changed()}, body
        except BaseException as error:
            if not self.watch.seen:
                return self._raised(error), b""
        return {"forbidden": self.watch.seen}, b""

    def _settle(self, seed: int) -> None:
        """Undo what a submission may have changed for the whole process, and seed every RNG."""
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
        torch.set_float32_matmul_precision("highest")
        if torch.are_deterministic_algorithms_enabled():        # setting it imports torch's compiler
            torch.use_deterministic_algorithms(False)
        for holder, name, value in FLAGS:
            setattr(holder, name, value)
        if self.device == "cpu":    # torch.manual_seed keeps each call, with its stack, for GPUs that nobody uses
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed(seed)

    def _raised(self, error: BaseException) -> dict:
        """An exception as an answer: its type, words and the student's own lines."""
        frames, trace, own = [], error.__traceback__, None
        while trace is not None:
            code = trace.tb_frame.f_code
            stem = Path(code.co_filename).stem
            if stem in self.folders and code.co_filename.startswith(str(self.folders[stem])) \
                    or Path(code.co_filename).parent == Path(self.fallback):
                frames.append({"file": code.co_filename, "line": trace.tb_lineno,
                               "function": code.co_qualname})
                own = trace if code.co_filename == str(self.file) else own
            trace = trace.tb_next
        if type(error) is NotImplementedError and not error.args and frames:
            stem = Path(frames[-1]["file"]).stem
            return {"todo": stem if stem in self.folders else self.chapter}
        if isinstance(error, SyntaxError) and error.filename and error.lineno:
            frames.append({"file": error.filename, "line": error.lineno, "function": ""})
        message, called = explain.message(error, self.chapter), ""
        if isinstance(error, TypeError) and not frames:
            message, called = explain.signature(error, message)
        return {"raised": type(error).__name__, "message": message, "frames": frames[-MAX_FRAMES:],
                "called": called, "operation": explain.operation(own, self.source) if own else "",
                # A GPU's error stays with its process: every later call would raise it too.
                "spent": self.device == "cuda" and ("CUDA" in message or isinstance(error, torch.AcceleratorError)),
                "named": sorted(self.parameters & set(re.findall(r"\w+", message)))}


@contextlib.contextmanager
def _stack_printed(patience: float):
    """Print where the code is, shortly before this many seconds are over (0: never)."""
    if patience:
        faulthandler.dump_traceback_later(EARLY * patience, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
