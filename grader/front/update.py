"""`update EDITION`: what is new in a students' edition, brought into a folder that somebody works in.

An exercise that is begun stays as it is. Whatever is replaced is kept in `backups/`, and each file appears whole or not
at all: exercises first, which are compared with the stubs of before, then the rest, the list of what was handed out,
and last the grader, as one folder. So the same command goes on with an update that was stopped.
"""

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from grader.course import chapters
from grader.course.chapters import ROOT, Chapter, shown

LIST = "edition.sha256"     # of each file as it was handed out, as sha256sum has it
BACKUPS = ROOT / "backups"
LEFT = {".git", ".venv", "__pycache__", ".ipynb_checkpoints", ".pytest_cache", BACKUPS.name}
BESIDE = ".new"             # the ending of a stub that lies beside a begun file

GRADER, STAGED, FINISH = ROOT / "grader", ROOT / "grader.new", ROOT / "grader.py"
# Python runs this while there is no folder grader/: an update was stopped between two steps.
FINISHING = '''"""An update of the grader was stopped: put the new one in its place, and go on."""
import os
import subprocess
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
os.rename(here / "grader.new", here / "grader")
os.remove(__file__)
sys.exit(subprocess.call([sys.executable, "-m", "grader", *sys.argv[1:]]))
'''


def run(edition: Path, tell=print) -> None:
    """Bring what is new in an edition, a folder or a zip, into this one. tell(words): told what was done, in lines."""
    if _is_course(ROOT):
        raise ValueError(f"{ROOT} holds the whole course, which git updates; update is for students' editions")
    with _opened(edition) as new:
        Update(new, tell).run()


def listed(folder: Path) -> str:
    """The list of an edition's files: each with its hash."""
    return "".join(f"{_hash(folder / name)}  {name.as_posix()}\n" for name in _files(folder) if name.name != LIST)


class Update:
    """One update, from the folder of the new edition."""

    def __init__(self, new: Path, tell):
        self.new, self.tell = new, tell
        self.backup = _unused(BACKUPS / time.strftime("%Y%m%d-%H%M%S"))
        self.before = _read_list(ROOT / LIST)
        self.written: list[str] = []        # that were not there
        self.replaced: list[str] = []
        self.yours: list[str] = []          # among these, what was not as it had been handed out

    def run(self) -> None:
        known = {chapter.stem for chapter in chapters.chapters()}
        given = {chapter.stem for chapter in chapters.chapters() if chapter.solution.exists()}
        names = [name for name in _files(self.new) if name.parts[0] != GRADER.name and name.as_posix() != LIST]
        exercises = [name for name in names if re.fullmatch(r"exercises/ex\d\d_\w+\.py", name.as_posix())]
        begun, beside = self._exercises(exercises)
        for name in sorted(set(names) - set(exercises)):        # the stubs among them
            old, fresh = self.before.get(name.as_posix()), _hash(self.new / name)
            if not (ROOT / name).exists() or fresh not in (old, _hash(ROOT / name)):
                self._put(self.new / name, ROOT / name, old)
        if (self.new / LIST).exists() and _hash(self.new / LIST) != _hash(ROOT / LIST):
            self._put(self.new / LIST, ROOT / LIST, None)
        grader = self._grader()
        self._say(sorted({chapter.stem for chapter in chapters.chapters()} - known),
                  sorted({chapter.stem for chapter in chapters.chapters() if chapter.solution.exists()} - given),
                  begun, beside, grader)

    def _exercises(self, names: list[Path]) -> tuple[list[str], list[Path]]:
        """Put fresh stubs where nothing was begun; (what is begun, the stubs that lie beside such files)."""
        begun, beside = [], []
        for name in names:
            mine, fresh, before = chapters.EXERCISES / name.name, _text(self.new / name), _stub(Chapter(name.stem))
            if not mine.exists() or _text(mine) == before:
                if not mine.exists() or before != fresh:
                    self._put(self.new / name, mine, _hash(mine))
            elif _text(mine) != fresh:
                begun.append(name.stem)
                new = mine.with_name(mine.name + BESIDE)
                if before != fresh and (not new.exists() or _text(new) != fresh):
                    self._put(self.new / name, new, _hash(new))
                beside += [new] * new.exists()
        return begun, beside

    def _put(self, source: Path, target: Path, handed_out: str | None) -> None:
        """Write a file, whole or not at all, once what was there is kept. handed_out: the hash of that as it was."""
        name = shown(target)
        if target.exists():
            self._keep(target)
            self.replaced.append(name)
            self.yours += [name] * (handed_out != _hash(target) and target.name != LIST)
        else:
            self.written.append(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(target.name + ".part")
        shutil.copyfile(source, draft)
        os.replace(draft, target)

    def _keep(self, path: Path) -> None:
        inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path("exercises", path.name)
        kept = self.backup / inside
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, kept)

    def _grader(self) -> bool:
        """Put the new grader in the place of the old one, as a whole; whether there was anything new in it."""
        fresh = {name: _hash(self.new / name) for name in _files(self.new) if name.parts[0] == GRADER.name}
        old = {name: _hash(ROOT / name) for name in _files(ROOT, GRADER.name)}
        if fresh != old:
            shutil.rmtree(STAGED, ignore_errors=True)
            for name in fresh:
                copy = STAGED / name.relative_to(GRADER.name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.new / name, copy)
            self.backup.mkdir(parents=True, exist_ok=True)
            if FINISH.exists():
                self._keep(FINISH)
            FINISH.write_text(FINISHING, "utf-8")
            os.rename(GRADER, self.backup / GRADER.name)
            os.rename(STAGED, GRADER)
        if FINISH.exists() and _text(FINISH) == FINISHING:
            FINISH.unlink()
        return fresh != old

    def _say(self, new: list[str], given: list[str], begun: list[str], beside: list[Path], grader: bool) -> None:
        if new:
            self.tell(f"New: {', '.join(new)}.")
        if given := [stem for stem in given if stem not in new]:
            self.tell(f"Solved in solutions/ now: {', '.join(given)}.")
        if not (self.written or self.replaced or grader):
            self.tell("Everything is as in this edition already.")
        else:
            self.tell(f"{len(self.written)} files are new, {len(self.replaced)} were replaced"
                      f"{', and so was the grader' * grader}.")
        if begun:
            self.tell(f"Begun, and left as they are: {', '.join(begun)}.")
        for path in beside:
            self.tell(f"The stub of {path.stem.removesuffix('.py')} is another than the one you began with: "
                      f"it lies beside your file, as {shown(path)}.")
        for name in self.yours:
            self.tell(f"You had changed {name}: yours is {shown(self.backup / name)}.")
        if self.backup.exists():
            self.tell(f"What was replaced is kept in {shown(self.backup)}.")
        if "requirements.txt" in self.replaced:
            self.tell("Other packages are needed now: pip install -r requirements.txt")


@contextlib.contextmanager
def _opened(edition: Path) -> Iterator[Path]:
    """The folder of an edition: itself, or the one that it holds; unpacked for a while where it is a zip."""
    with tempfile.TemporaryDirectory(prefix="edition-") as scratch:
        top = edition
        if edition.is_file():
            top = Path(scratch)
            try:
                with zipfile.ZipFile(edition) as archive:
                    archive.extractall(top)
            except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
                raise ValueError(f"{edition} is no zip that can be read: {error}") from None
        if not top.is_dir():
            raise ValueError(f"there is no {edition}; update takes the folder or the zip of the new edition")
        inside = [top, *(path for path in sorted(top.iterdir()) if path.is_dir())]
        found = [path for path in inside if (path / "grader/__main__.py").is_file() and (path / "exercises").is_dir()]
        if not found:
            raise ValueError(f"{edition} holds no edition: no grader/ and exercises/ side by side")
        if found[0].resolve() == ROOT:
            raise ValueError(f"{edition} is this folder itself; update takes the folder or the zip of the new edition")
        if _is_course(found[0]):
            raise ValueError(f"{edition} holds the whole course, with all solutions, and no students' edition")
        yield found[0]


def _is_course(folder: Path) -> bool:
    return (folder / "grader/classroom").is_dir()


def _files(top: Path, under: str = "") -> list[Path]:
    """The files of an edition, as paths inside of it."""
    return sorted(inside for path in (top / under).rglob("*") if path.is_file() and not path.is_symlink()
                  and not LEFT & set((inside := path.relative_to(top)).parts) and path.suffix not in (".pyc", ".part"))


def _read_list(path: Path) -> dict[str, str]:
    """The hash of each file as it was handed out; nothing where that is not known."""
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    return {line[66:]: line[:64] for line in lines}


def _hash(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _text(path: Path) -> str:
    """A file's text, with one kind of line ends."""
    return path.read_text("utf-8", "replace")


def _stub(chapter: Chapter) -> str | None:
    """A chapter's stub as it was handed out, None where it was not."""
    try:
        return chapters.stub(chapter)
    except OSError:
        return None


def _unused(path: Path) -> Path:
    return next(found for count in range(1, 10_000)
                if not (found := path if count == 1 else path.with_name(f"{path.name}-{count}")).exists())
