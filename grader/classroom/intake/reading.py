"""One student's folder or archive, read without believing any of it: in a process of its own, which has limits.

The regular .py files of one folder are taken, and nothing else. What is left out is said. Nothing is opened through a
link: a folder is walked by descriptors, each opened below the one above it.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from grader.classroom.intake import commits
from grader.classroom.intake.archives import MAX_ENTRIES, Entry, Refused, kind_of, of_tar, of_zip
from grader.classroom.intake.gradescope import people
from grader.course import chapters, stubs
from grader.sandbox.frames import channel, read_frame, write_frame
from grader.sandbox.jail import MAX_FILE

MAX_FILES = 500             # .py files of one student
MAX_BYTES = 8 << 20         # bytes of these files together
MAX_ARCHIVE = 64 << 20      # bytes of an archive as it was handed in
MAX_DEPTH = 3               # folders within each other: one that wraps all, exercises/, and one to spare
MAX_NAME = 100              # bytes of a file's name; a file system takes 255
MAX_REFUSED = 100           # of one student's files; who has more meant none of it
MAX_SAID = 10               # refusals that are listed for one student
MEMORY = 512 << 20          # bytes that reading may take
ENDINGS = (".tar.gz", ".tgz", ".tar", ".zip")

_NOT_THEIRS = {"__pycache__", "__MACOSX"}
_COURSE_S = {"solutions", "stubs"}      # beside exercises/ in a copy of the course


@dataclass
class Read:
    """What was found in a folder or an archive."""

    chosen: dict[str, bytes] = field(default_factory=dict)      # the files that count, by name
    files: list[str] = field(default_factory=list)              # every file that was seen, as "folder/name"
    refused: list[str] = field(default_factory=list)            # what was left out, and why
    times: dict[str, tuple[float, str]] = field(default_factory=dict)   # of those that count: seconds, and whose word


def read(files: dict[str, Path]) -> Read:
    """Read what one student handed in; whatever is wrong with it is said in what comes back.

    files: a folder or an archive under the name "", or single files under the names that they had.
    """
    found = Read()
    try:
        folder, found.chosen = _chosen(_sift(_all(files), found), found)
        found.times = {name: found.times[folder + name] for name in found.chosen}
        if "" in files:
            found.times |= commits.times(files[""], folder, list(found.chosen))
        found.refused[:0] = _beside_stubs(found)
    except Exception as error:      # a broken archive can raise nearly anything
        why = str(error) if isinstance(error, Refused) else f"it cannot be read ({type(error).__name__}: {error})"
        found.chosen, found.times, found.refused = {}, {}, [f"{next(iter(files.values())).name}: {shown(why)}"]
    found.files = [shown(name) for name in found.files]
    if len(found.refused) > MAX_SAID:
        found.refused[MAX_SAID:] = [f"and {len(found.refused) - MAX_SAID} more were left out"]
    return found


def _sift(entries: Iterator[Entry], found: Read) -> dict[str, bytes]:
    """The .py files among these, by their path; what else there was is kept in `found`."""
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    aside: dict[str, str] = {}      # the first of each kind that may hold exercises, and is not looked into
    for count, entry in enumerate(entries):
        if count >= MAX_ENTRIES:
            raise Refused(f"more than {MAX_ENTRIES:,} files and folders")
        if len(found.refused) > MAX_REFUSED:
            raise Refused(f"more than {MAX_REFUSED} of its files cannot be taken, such as {found.refused[0]}")
        parts = [part for part in entry.name.replace("\\", "/").split("/") if part not in ("", ".")]
        if not parts or any(part.startswith(".") and part != ".." or part in _NOT_THEIRS for part in parts):
            continue
        path, short = "/".join(parts), shown("/".join(parts[-2:]))
        if entry.kind == "folder":
            if len(parts) > MAX_DEPTH:
                aside.setdefault("folder", f"{shown(path)}: not looked into, it lies in {MAX_DEPTH} others")
        elif entry.name.startswith(("/", "\\")) or ".." in parts or re.match("[A-Za-z]:", entry.name) \
                or "\0" in path:
            found.refused.append(f"{short}: its path leads outside")
        elif entry.kind != "file":
            found.refused.append(f"{short}: a {entry.kind} is not read")
        elif len(parts) > MAX_DEPTH + 1:
            aside.setdefault("folder", f"{shown(path)}: not looked at, it lies in more than {MAX_DEPTH} folders")
        elif path.casefold() in seen:
            files = {name: content for name, content in files.items() if name.casefold() != path.casefold()}
            found.refused.append(f"{short}: it is there twice")
        else:
            seen.add(path.casefold())
            if len(found.files) < MAX_FILES:
                found.files.append(path)
            if path.endswith(".py") and parts[-1][:-3].isidentifier():
                content = entry.read(MAX_FILE + 1)
                if len(parts[-1].encode()) > MAX_NAME:
                    found.refused.append(f"{short}: its name has more than {MAX_NAME} bytes")
                elif len(content) > MAX_FILE:
                    found.refused.append(f"{short}: larger than {MAX_FILE >> 20} MB")
                else:
                    files[path], found.times[path] = content, (entry.at, "file")
                if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
                    raise Refused(f"more than {MAX_FILES} .py files or {MAX_BYTES >> 20} MB of them")
            elif path.lower().endswith(ENDINGS):
                aside.setdefault("archive", f"{short}: an archive in it is not read")
    if not any(_is_exercise(path) for path in files):
        found.refused += aside.values()
    return files


def _chosen(files: dict[str, bytes], found: Read) -> tuple[str, dict[str, bytes]]:
    """The one folder that holds the exercises, "" or "a/b/", and its files by name: the outermost that has any.

    A copy of the whole course has exercises/ and solutions/ side by side: exercises/ is meant.
    """
    folders: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = content
    counts = {folder: sum(map(_is_exercise, names)) for folder, names in folders.items()}

    def rank(folder: str):
        depth = folder.count("/") + bool(folder)
        return not counts[folder], depth, folder.rpartition("/")[2] != "exercises", -counts[folder], folder
    if not folders:
        return "", {}
    best, *others = sorted(folders, key=rank)
    for other in others:
        if counts[best] and counts[other] and other.rpartition("/")[2] not in _COURSE_S:
            found.refused.append(f"{shown(other) or 'the folder itself'}: it holds exercises too; those in "
                                 f"{shown(best) or 'the folder itself'} were taken")
    return f"{best}/" if best else "", folders[best]


def _beside_stubs(found: Read) -> list[str]:
    """Files that were most likely meant where an exercise is still the stub that was handed out."""
    said = []
    for chapter in chapters.chapters():
        name = f"{chapter.stem}.py"
        others = [path for path in found.files if path.rpartition("/")[2] != name]
        if name in found.chosen and (near := chapters.near_miss(chapter, others)) \
                and stubs.same_code(found.chosen[name].decode("utf-8", "replace"), chapters.stub(chapter)):
            said.append(f"{near}: {name} was graded instead, which is the stub as it was handed out")
    return said


def _is_exercise(path: str) -> bool:
    return path.endswith(".py") and path.rpartition("/")[2][:-3] in {chapter.stem for chapter in chapters.chapters()}


def shown(text: str) -> str:
    """A stranger's words, short and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])


# -- folders and archives ------------------------------------------------------------------------

def _all(files: dict[str, Path]) -> Iterator[Entry]:
    """What lies in a folder or an archive, or in single files, of which one may be an archive itself."""
    for name, path in files.items():
        top = _open(path)
        try:
            if not name or (len(files) == 1 and name.lower().endswith(ENDINGS)):
                yield from _entries(path.name, top)
            else:
                status = os.fstat(top)
                yield Entry(name, kind_of(status.st_mode), lambda n, top=top: os.read(top, n), status.st_mtime)
        finally:
            os.close(top)


def _entries(name: str, top: int) -> Iterator[Entry]:
    """What lies in an open folder or archive."""
    if stat.S_ISDIR(os.fstat(top).st_mode):
        inside = [inner for inner in os.listdir(top) if not inner.startswith(".")]
        # Moodle hands out a folder per student with their archive in it.
        if len(inside) != 1 or not inside[0].lower().endswith(ENDINGS):
            yield from _of_folder(top)
            return
        name, top = inside[0], _open(inside[0], top)
    else:
        top = os.dup(top)
    with open(top, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{name} is no file")
        if status.st_size > MAX_ARCHIVE:
            raise Refused(f"an archive larger than {MAX_ARCHIVE >> 20} MB")
        for entry in (of_zip if name.lower().endswith(".zip") else partial(of_tar, name))(file):
            entry.at = status.st_mtime      # what an archive says of times is its maker's word
            yield entry


def _of_folder(top: int, path: str = "") -> Iterator[Entry]:
    for name in sorted(os.listdir(top)):
        if name.startswith(".") or name in _NOT_THEIRS:
            continue
        status = os.lstat(name, dir_fd=top)
        mode = status.st_mode
        if not stat.S_ISDIR(mode):
            yield Entry(path + name, kind_of(mode), partial(_first, name, top), status.st_mtime)
            continue
        yield Entry(path + name, "folder")
        if path.count("/") < MAX_DEPTH:
            inner = _open(name, top, os.O_DIRECTORY)
            try:
                yield from _of_folder(inner, f"{path}{name}/")
            finally:
                os.close(inner)


def _open(name, folder: int | None = None, how: int = 0) -> int:
    """Open what must not have become a link or a pipe since it was looked at."""
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | how, dir_fd=folder)


def _first(name: str, folder: int, n: int) -> bytes:
    with open(_open(name, folder), "rb") as file:
        return file.read(n)


# -- the process itself ----------------------------------------------------------------------------

def main() -> None:
    """Read what is asked for, one after the other, and write nothing to the disk."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    requests, replies = channel()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            request, _ = read_frame(requests)
            if request["do"] == "people":
                said, body = {"people": people(Path(request["with"]["path"]))}, b""
            else:
                found = read({name: Path(path) for name, path in request["with"]["files"].items()})
                said = {"sizes": {name: len(content) for name, content in found.chosen.items()},
                        "files": found.files, "refused": found.refused, "times": found.times}
                body = b"".join(found.chosen.values())
            write_frame(replies, {"id": request["id"], **said}, body)


if __name__ == "__main__":
    main()
