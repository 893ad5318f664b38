"""How checks are asked, and what a worker is told of it."""

from dataclasses import dataclass
from pathlib import Path

from grader.course import chapters, stubs
from grader.course.chapters import HIDDEN, Chapter
from grader.course.checks import Check

TIMEOUT = 10.0              # seconds that one check, or loading a chapter, may take
EARLY = 0.9                 # of them, then its stack is printed


@dataclass(frozen=True)
class Setting:
    """How checks are asked: the same for every submission of a run. As JSON it is `dataclasses.asdict` of it."""

    device: str = "cpu"
    seed: int = 0
    timeout: float = TIMEOUT
    hidden_from: str = ""       # a folder with an instructor's own hidden checks
    walls: bool = False         # submissions run in the jail

    def __post_init__(self):
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'cpu' or 'cuda', got {self.device!r}")
        if not self.timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, got {self.timeout}")

    @property
    def on_cpu(self) -> bool:
        return self.device == "cpu"

    def question(self, check: Check) -> dict:
        """What a worker needs to ask one check."""
        return {"file": check.file, "function": check.function, "dtype": check.dtype, "seed": self.seed}


def scan_request(chapter: Chapter, folders: dict, fallback: Path, setting: Setting, hidden: bool = True,
                 lent: dict | None = None) -> dict:
    """What a worker needs to load a chapter: where each file lies, the checks' files, and what a student writes.

    lent: of each chapter the reference's file, and the parts that are filled in with it, [path, [names]].
    """
    return {"chapter": chapter.stem, "folders": folders, "lent": lent or {}, "fallback": str(fallback),
            "tests": test_files(chapter, setting, hidden), "parts": sorted(stubs.parts(chapter)),
            "device": setting.device}


def test_files(chapter: Chapter, setting: Setting, hidden: bool) -> list[dict]:
    """The chapter's test files that are here; hidden ones of the course, then the instructor's own."""
    paths = [chapter.tests()]
    for folder in [HIDDEN, *filter(None, [setting.hidden_from])] if hidden else []:
        paths += sorted(path for path in Path(folder).glob("test_ex*.py") if chapters.tested(path) == chapter)
    return [{"file": chapters.shown(path), "path": str(path), "hidden": path != paths[0]}
            for path in paths if path.exists()]
