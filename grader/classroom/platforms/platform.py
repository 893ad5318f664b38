"""`python -m grader platform NAME WHERE`: the files that a place where students hand in needs.

They lie in platforms/NAME. For GitHub Classroom and for a plain folder they are copied into the students'
edition; for Gradescope they become a zip with what grading reads of the course.
"""

import shlex
import zipfile
from pathlib import Path

from grader.course.chapters import ROOT, several, shown

PLATFORMS = Path(__file__).parent
COURSE = ("grader", "given", "solutions", "tests/hidden", "tests/mistakes", "exercises")      # and what lies in tests/
BUILT = (2000, 1, 1, 0, 0, 0)       # the time in the zip, so that the same course gives the same bytes


def run(options) -> int:
    """Write a platform's files; nothing that is there is overwritten."""
    names = sorted(path.name for path in PLATFORMS.iterdir() if path.is_dir() and path.name != "__pycache__")
    if options.name not in names:
        raise ValueError(f"there is no platform {options.name!r}; there are {', '.join(names)}")
    files = {path.relative_to(PLATFORMS / options.name): path
             for path in sorted((PLATFORMS / options.name).rglob("*")) if path.is_file()}
    if options.name == "gradescope":
        _zip(options.where, files, options)
        return 0
    if options.chapters or options.no_jail:
        raise ValueError(f"--chapters and --no-jail are for gradescope; {options.name} has no use for them")
    if not (options.where / "exercises").is_dir():
        raise ValueError(f"{options.where} holds no exercises/: it takes the students' edition")
    if there := [name for name in files if (options.where / name).exists()]:
        raise ValueError(f"{options.where / there[0]} is there already, and nothing is overwritten")
    for name, path in files.items():
        (options.where / name).parent.mkdir(parents=True, exist_ok=True)
        (options.where / name).write_bytes(path.read_bytes())
        print(f"wrote {shown(options.where / name)}")
    return 0


def _zip(where: Path, files: dict[Path, Path], options) -> None:
    """Gradescope's zip. Without a jail a submission could read hidden checks: they are not in it then."""
    chosen = [chapter.number for chapter in several(*options.chapters)] if options.chapters else []
    flags = [*(["--chapters", *chosen] if chosen else []), *(["--no-jail"] if options.no_jail else [])]
    course = [ROOT / name for name in ("pyproject.toml", "requirements.txt", "requirements-class.txt", "grading.toml")]
    course += (ROOT / "tests").glob("*.py")
    for folder in COURSE:
        course += [path for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts and path.is_file()]
    files = {**{path.relative_to(ROOT): path for path in course}, **files}
    if options.no_jail:
        files = {name: path for name, path in files.items() if name.parts[:2] != ("tests", "hidden")}
    with zipfile.ZipFile(where, "x", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            content = path.read_bytes()
            if name == Path("run_autograder"):
                content = content.replace(b"options=()", f"options=({shlex.join(flags)})".encode())
            info = zipfile.ZipInfo(name.as_posix(), BUILT)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o755 if path.is_relative_to(PLATFORMS) else 0o644) << 16
            archive.writestr(info, content)
    print(f"wrote {shown(where)}, {where.stat().st_size / 1e6:.1f} MB, {len(files)} files")
