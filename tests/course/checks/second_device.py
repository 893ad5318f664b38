"""A second device for torch, where there is no GPU: built by the compiler at hand, and every check asked there.

    python -m tests.course.checks.second_device [CHAPTER …]

second_device.cpp says what the device is. It changes torch for the whole process, so tests run this module in a
process of its own. On the device the reference must answer each check as on the CPU, each alternative as the
reference; with SEEDS above 1, as every week, each known mistake must be caught by a check that a student sees.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import torch

from grader.course import chapters, checks
from grader.course.chapters import SOLUTIONS, Chapter
from grader.course.checks import Check
from grader.judge import compare
from grader.judge.edits import edits
from grader.judge.referee import Referee
from grader.sandbox import wire
from grader.sandbox.setting import Setting, scan_request
from grader.sandbox.worker import LoadedChapter
from tests.course.checks.touched import ASK_ALL, changed_by, lines_of_checks, lines_run

NAME = "elsewhere"
SOURCE = Path(__file__).with_suffix(".cpp")
TORCH = Path(torch.__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer-course"


def compiler() -> str | None:
    """The C++ compiler at hand."""
    return next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), "g++", "clang++", "c++"])), None)


def missing() -> str:
    """Why the device cannot be built here, or ""."""
    if sys.platform != "linux":
        return "the device is built on Linux only"
    if not compiler():
        return "no C++ compiler here (g++ or clang++)"
    if not (TORCH / "include" / "torch" / "library.h").exists():
        return "this torch comes without its C++ headers"
    return ""


def build() -> Path:
    """The device as a library, from the user's cache or compiled now; two at once may build without harm."""
    command = [compiler(), "-O0", "-std=c++20", "-shared", "-fPIC", f"-I{TORCH}/include", str(SOURCE),
               f"-L{TORCH}/lib", "-ltorch_cpu", "-lc10"]
    parts = [SOURCE.read_text("utf-8"), *command, torch.__version__, sys.version]
    library = CACHE / f"second_device-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}.so"
    if not library.exists():
        import fcntl
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / "second_device.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)        # who comes second waits, and finds it there
            if not library.exists():
                with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                    draft = Path(scratch) / library.name
                    subprocess.run([*command, "-o", str(draft)], check=True)
                    os.replace(draft, library)
    return library


def install() -> None:
    """Give torch the device. There is no way back in this process."""
    torch.ops.load_library(build())
    torch.utils.rename_privateuse1_backend(NAME)
    module = types.ModuleType(NAME)
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    module.device = lambda device: contextlib.nullcontext()
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    torch._register_device_module(NAME, module)
    compare.TOLERANCE[NAME] = compare.TOLERANCE["cuda"]     # it too adds in another order, here and there


class Device:
    """A chapter's checks, asked on one device."""

    def __init__(self, chapter: Chapter, device: str):
        self.folders = {other.stem: str(SOLUTIONS) for other in chapters.chapters()}
        self.scan = {**scan_request(chapter, self.folders, SOLUTIONS, Setting()), "device": device}
        self.chapter, self.key, self.known = chapter, Referee(), {}
        self.loaded = self.open(SOLUTIONS)

    def open(self, folder: Path) -> LoadedChapter:
        """A loaded with the chapter's file of this folder."""
        loaded = LoadedChapter(**{**self.scan, "folders": {**self.folders, self.chapter.stem: str(folder)}})
        loaded.scan()
        self.failed = loaded.load()
        return loaded

    def wrong(self, loaded: LoadedChapter, check: Check) -> str:
        """What is wrong with an edited reference's answer, as this device's reference sees it."""
        question = _question(check)
        if check not in self.known:
            self.known[check] = not self.key.prepare(self.scan, [question])["broken"]
        if not self.known[check]:
            return ""       # the reference's own trouble, which is reported as such
        reply, body = (self.failed, b"") if self.failed else loaded.ask(**question)
        if "answer" not in reply:
            return _words(reply)
        facts = self.key.judge(self.chapter.stem, question, reply, check.rtol, body)["facts"]
        return "; ".join(facts)

    def catching(self, folder: Path, asked: list[Check]) -> Check | None:
        """The first of these checks that finds the file of this folder wrong."""
        loaded = self.open(folder)
        return next((check for check in asked if self.wrong(loaded, check)), None)


def _question(check: Check) -> dict:
    return Setting().question(check)


def differences(chapter: Chapter) -> list[str]:
    """What answers otherwise on the device than on the CPU, a line each."""
    found = []
    asked = [check for hidden in (False, True) for check in
             checks.collect(chapter.tests(hidden), chapter.stem, hidden)
             if "cuda" in check.devices and not check.lacking]
    cpu, other = Device(chapter, "cpu"), Device(chapter, NAME)
    lines = lines_of_checks(chapter)
    for check in asked:
        with lines_run(chapter.solution) as run:
            replies = [device.loaded.ask(**_question(check)) for device in (cpu, other)]
        lines[check] |= run
        if facts := _unlike(*replies, check):
            found.append(f"the reference, {check.name}: {facts}")
    with tempfile.TemporaryDirectory() as scratch:
        for number, edit in enumerate(edits(chapter, "alternative")):
            loaded = other.open(edit.write(chapter, Path(scratch) / f"alternative-{number}"))
            may = changed_by(edit.source, chapter, lines)
            for check in (check for check in asked if ASK_ALL or check in may):
                if facts := other.wrong(loaded, check):
                    found.append(f"{edit.words} {check.name}: {facts}")
        visible = [check for check in asked if not check.hidden]
        for number, edit in enumerate(edits(chapter, "mistake") if ASK_ALL else ()):
            folder = edit.write(chapter, Path(scratch) / f"mistake-{number}")
            caught = other.catching(folder, visible)
            if caught and caught not in changed_by(edit.source, chapter, lines):
                found.append(f"{caught.name} was taken not to see this: {edit.words}")
            if not caught and (missed := cpu.catching(folder, visible)):
                found.append(f"{missed.name} catches this on the CPU alone: {edit.words}")
            visible.sort(key=lambda check: check != caught)     # asked first the next time
    return found


def _words(reply: dict) -> str:
    return f"{reply['raised']}: {reply['message']}" if "raised" in reply else str(reply)


def _unlike(one: tuple[dict, bytes], other: tuple[dict, bytes], check: Check) -> str:
    """How the reference's reply there differs from the one here, apart from where its tensors lie."""
    (right, right_body), (mine, body) = one, other
    if "answer" not in mine or "answer" not in right:
        return "" if mine.get("raised") == right.get("raised") else _words(mine)
    answers = wire.decode(mine["answer"], body), wire.decode(right["answer"], right_body)
    for answer in answers:
        for leaf in compare.leaves(answer).values():
            leaf.device = ""
    return "; ".join(f"{path} {' '.join(said)}" for path, said in
                     compare.differences(*answers, NAME, check.rtol).items())


def main() -> None:
    wanted = [chapters.find(name) for name in sys.argv[1:]] or chapters.chapters()
    torch.set_num_threads(1)
    install()
    found = [(chapter, line) for chapter in wanted for line in differences(chapter)]
    for chapter, line in found:
        print(f"{chapter.stem}: {line}")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    main()
