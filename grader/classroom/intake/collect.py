"""What a class has handed in: a folder or an archive per student, read without believing any of it.

Of each the regular .py files of one folder are copied, and nothing else. What is left out is said.
"""

import gzip
import os
import re
import shutil
import stat
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader.course import chapters
from grader.sandbox.jail import MAX_FILE

MAX_ENTRIES = 10_000        # files and folders of one student
MAX_FILES = 500             # .py files among them
MAX_BYTES = 8 << 20         # bytes of these files together
MAX_ARCHIVE = 64 << 20      # bytes of an archive as it was handed in
MAX_UNPACKED = 256 << 20    # bytes that reading through a .tar.gz may unpack
MAX_DEPTH = 3               # folders within each other: one that wraps all, exercises/, and one to spare
MAX_SAID = 10               # refusals that are listed for one student
ENDINGS = (".tar.gz", ".tgz", ".tar", ".zip")

_NAME = re.compile(r"[\w.\-@; ]{1,100}")
_NOT_THEIRS = {"__pycache__", "__MACOSX"}


class Refused(ValueError):
    """The whole of what a student handed in cannot be read; the words say why."""


@dataclass
class Handed:
    """What one student handed in."""

    name: str
    source: str                     # the folder's or archive's name
    folder: Path                    # where the copied files lie
    files: list[str] = field(default_factory=list)      # every file that was seen, as "folder/name"
    refused: list[str] = field(default_factory=list)    # what was left out, and why

    def missing(self, chapter: chapters.Chapter) -> str | None:
        """None where the chapter's file is there; else what was there instead, or ""."""
        if (self.folder / f"{chapter.stem}.py").is_file():
            return None
        near = chapters.near_miss(chapter, self.files)
        return "; ".join([*([f"there is {near}"] if near else []), *self.refused])


@dataclass
class Entry:
    """A file of a folder or an archive; `read(n)` gives its first n bytes."""

    name: str
    kind: str       # "file", "link" or "device"
    read: Callable[[int], bytes] | None = None


def collect(submissions: Path, into: Path, shard: tuple[int, int] = (1, 1)) -> tuple[list[Handed], dict[str, str]]:
    """Copy what each student handed in to a folder of their name below `into`.

    shard: (I, N) takes every N-th student, from the I-th on.
    Returns (the students, why others are not among them by the name of their folder or archive).
    """
    sources, refused = sources_of(submissions)
    students = []
    for paths in list(sources.values())[shard[0] - 1::shard[1]]:
        if len(paths) > 1:      # which one counts is not for a program to say
            names = " and ".join(path.name for path in paths)
            refused.update({path.name: f"handed in twice: {names}" for path in paths})
        else:
            students.append(_copy(paths[0], _student(paths[0])[0], into))
    return students, refused


def sources_of(submissions: Path) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """(the folders and archives by their student's name, why others are refused)."""
    if not submissions.is_dir():
        raise ValueError(f"SUBMISSIONS {submissions} is no folder")
    if any((submissions / f"{chapter.stem}.py").exists() for chapter in chapters.chapters()):
        raise ValueError(f"SUBMISSIONS {submissions} holds exercises itself; "
                         "it takes a folder of folders or archives, one per student")
    sources: dict[str, list[Path]] = {}
    refused: dict[str, str] = {}
    for path in sorted(submissions.iterdir()):
        if path.name.startswith("."):
            continue
        name, why = _student(path)
        if why:
            refused[path.name] = why
        else:
            sources.setdefault(name.casefold(), []).append(path)
    if not sources and not refused:
        raise ValueError(f"SUBMISSIONS {submissions} is empty")
    return sources, refused


def parse_shard(text: str) -> tuple[int, int]:
    """(I, N) of "I/N"."""
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        raise ValueError(f"--shard {text!r}: it takes I/N with I from 1 to N, such as 2/8")
    return number, of


def _student(path: Path) -> tuple[str, str]:
    """(the student's name, why this entry is refused)."""
    if path.is_symlink():
        return "", "a link is not followed"
    name = path.name
    if not path.is_dir():
        ending = next((end for end in ENDINGS if name.lower().endswith(end)), "")
        if not path.is_file() or not ending:
            return "", "neither a folder nor an archive (.zip, .tar, .tar.gz, .tgz)"
        name = name[:-len(ending)]
    name = unicodedata.normalize("NFC", name)
    if not _NAME.fullmatch(name) or name[0] in ". " or name[-1] in ". ":
        return "", "a name has 1 to 100 letters, digits, spaces and . _ - @ ; and neither begins nor ends with a dot"
    return name, ""


def _copy(path: Path, name: str, into: Path) -> Handed:
    """Read one student's folder or archive, and write the files that count."""
    handed = Handed(name, path.name, into / name)
    try:
        files = _sift(_entries(path), handed)
    except Exception as error:      # a broken archive can raise nearly anything
        why = str(error) if isinstance(error, Refused) else f"it cannot be read ({type(error).__name__}: {error})"
        files, handed.refused = {}, [f"{path.name}: {shown(why)}"]
    if handed.folder.exists():
        shutil.rmtree(handed.folder)
    handed.folder.mkdir(parents=True)
    for name, content in _chosen(files).items():
        (handed.folder / name).write_bytes(content)
    handed.files = [shown(name) for name in handed.files]
    if len(handed.refused) > MAX_SAID:
        handed.refused[MAX_SAID:] = [f"and {len(handed.refused) - MAX_SAID} more were left out"]
    return handed


def _sift(entries: Iterator[Entry], handed: Handed) -> dict[str, bytes]:
    """The .py files among these, by their path; what else there was is kept in `handed`."""
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    for count, entry in enumerate(entries):
        if count >= MAX_ENTRIES:
            raise Refused(f"more than {MAX_ENTRIES:,} files and folders")
        parts = [part for part in entry.name.replace("\\", "/").split("/") if part not in ("", ".")]
        if not parts or any(part.startswith(".") and part != ".." or part in _NOT_THEIRS for part in parts):
            continue
        path, short = "/".join(parts), shown("/".join(parts[-2:]))
        if entry.name.startswith(("/", "\\")) or ".." in parts or re.match("[A-Za-z]:", entry.name) \
                or "\0" in path:
            handed.refused.append(f"{short}: its path leads outside")
        elif entry.kind != "file":
            handed.refused.append(f"{short}: a {entry.kind} is not read")
        elif len(parts) <= MAX_DEPTH + 1:
            if path.casefold() in seen:
                files = {name: content for name, content in files.items() if name.casefold() != path.casefold()}
                handed.refused.append(f"{short}: it is there twice")
                continue
            seen.add(path.casefold())
            if len(handed.files) < MAX_FILES:
                handed.files.append(path)
            if path.endswith(".py") and parts[-1][:-3].isidentifier():
                content = entry.read(MAX_FILE + 1)
                if len(content) > MAX_FILE:
                    handed.refused.append(f"{short}: larger than {MAX_FILE >> 20} MB")
                else:
                    files[path] = content
                if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
                    raise Refused(f"more than {MAX_FILES} .py files or {MAX_BYTES >> 20} MB of them")
    return files


def _chosen(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of the one folder that holds the exercises, by name: the outermost that has any.

    A copy of the whole course has exercises/ and solutions/ side by side: exercises/ is meant.
    """
    stems = {chapter.stem for chapter in chapters.chapters()}
    folders: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = content

    def rank(folder: str):
        count = sum(name[:-3] in stems for name in folders[folder])
        depth = folder.count("/") + bool(folder)
        return not count, depth, folder.rpartition("/")[2] != "exercises", -count, folder
    return folders[min(folders, key=rank)] if folders else {}


def shown(text: str) -> str:
    """A stranger's words, short and without control characters."""
    return "".join(c if c.isprintable() else "?" for c in text[:200])


# -- folders and archives ------------------------------------------------------------------------

def _entries(path: Path) -> Iterator[Entry]:
    if path.is_dir():
        inside = [inner for inner in sorted(path.iterdir()) if not inner.name.startswith(".")]
        # Moodle hands out a folder per student with their archive in it.
        if len(inside) != 1 or not inside[0].name.lower().endswith(ENDINGS) or inside[0].is_symlink():
            return _of_folder(path)
        path = inside[0]
    if path.stat().st_size > MAX_ARCHIVE:
        raise Refused(f"an archive larger than {MAX_ARCHIVE >> 20} MB")
    return _of_zip(path) if path.name.lower().endswith(".zip") else _of_tar(path)


def _of_folder(top: Path) -> Iterator[Entry]:
    for folder, folders, names in os.walk(top):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NOT_THEIRS)
        deep = len(here.relative_to(top).parts) >= MAX_DEPTH
        for name in sorted([*names, *folders]):
            path = here / name
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode):
                yield Entry(path.relative_to(top).as_posix(), _kind(mode), lambda n, path=path: _first(path, n))
        if deep:
            folders.clear()


def _first(path: Path, n: int) -> bytes:
    """The first bytes of a file, which must not have become a link or a pipe since it was looked at."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        return file.read(n)


def _kind(mode: int) -> str:
    return "file" if stat.S_ISREG(mode) else "link" if stat.S_ISLNK(mode) else "device"


def _of_zip(path: Path) -> Iterator[Entry]:
    if path.read_bytes().count(b"PK\x01\x02") > MAX_ENTRIES:    # counted before zipfile makes an object of each
        raise Refused(f"more than {MAX_ENTRIES:,} files and folders")
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                continue
            # bz2 and lzma unpack a whole block at once, however little of it is asked for
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Refused("it is compressed in another way than a .zip commonly is")
            yield Entry(info.filename, _kind(mode) if stat.S_IFMT(mode) else "file",
                        lambda n, info=info: _read(archive.open(info), n))


def _read(stream, n: int) -> bytes:
    with stream:
        return stream.read(n)


class _Limited:
    """A stream that refuses to give more than MAX_UNPACKED bytes, whatever an archive says of itself."""

    def __init__(self, stream):
        self._stream, self._left = stream, MAX_UNPACKED

    def read(self, n: int) -> bytes:
        data = self._stream.read(min(n, 1 << 20))
        self._left -= len(data)
        if self._left < 0:
            raise Refused(f"it unpacks to more than {MAX_UNPACKED >> 20} MB")
        return data


def _of_tar(path: Path) -> Iterator[Entry]:
    opened = open(path, "rb") if path.name.lower().endswith(".tar") else gzip.open(path)
    with opened as stream, tarfile.open(fileobj=_Limited(stream), mode="r|") as archive:
        for info in archive:
            if not info.isdir():
                plain = info.isreg() and not info.issparse()
                yield Entry(info.name, "file" if plain else "link" if info.issym() or info.islnk() else "device",
                            lambda n, info=info: _read(archive.extractfile(info), n))
            archive.members.clear()     # or each one's header would be kept
