"""What lies in a .zip or a .tar, as its own tables say, which nobody believes: one entry after the other."""

import gzip
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_ENTRIES = 10_000        # files and folders of one student
MAX_UNPACKED = 256 << 20    # bytes that reading through a .tar.gz may unpack


class Refused(ValueError):
    """The whole of what a student handed in cannot be read; the words say why."""


@dataclass
class Entry:
    """A file of a folder or an archive; `read(n)` gives its first n bytes."""

    name: str
    kind: str       # "file", "link", "device" or "folder"
    read: Callable[[int], bytes] | None = None
    at: float = 0.0     # when the file was written, or the archive that it lies in


def kind_of(mode: int) -> str:
    return "file" if stat.S_ISREG(mode) else "link" if stat.S_ISLNK(mode) else "device"


def of_zip(file) -> Iterator[Entry]:
    if file.read().count(b"PK\x01\x02") > MAX_ENTRIES:     # counted before zipfile makes an object of each
        raise Refused(f"more than {MAX_ENTRIES:,} files and folders")
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if info.is_dir():
                yield Entry(info.filename, "folder")
                continue
            # bz2 and lzma unpack a whole block at once, however little of it is asked for
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise Refused("it is compressed in another way than a .zip commonly is")
            yield Entry(info.filename, kind_of(mode) if stat.S_IFMT(mode) else "file",
                        lambda n, info=info: _read(archive.open(info), n))


def _read(stream, n: int) -> bytes:
    with stream:
        return stream.read(n)


class _Limited:
    """A stream that refuses to give more than MAX_UNPACKED bytes, whatever an archive says of itself."""

    def __init__(self, stream):
        self._stream, self._left = stream, MAX_UNPACKED

    def read(self, n: int) -> bytes:
        self._left -= len(data := self._stream.read(min(n, 1 << 20)))
        if self._left < 0:
            raise Refused(f"it unpacks to more than {MAX_UNPACKED >> 20} MB")
        return data


def of_tar(name: str, file) -> Iterator[Entry]:
    stream = file if name.lower().endswith(".tar") else gzip.GzipFile(fileobj=file)
    with tarfile.open(fileobj=_Limited(stream), mode="r|") as archive:
        for info in archive:
            plain = info.isreg() and not info.issparse()
            kind = "folder" if info.isdir() else "link" if info.issym() or info.islnk() else "device"
            yield Entry(info.name, "file" if plain else kind, lambda n, info=info: _read(archive.extractfile(info), n))
            archive.members.clear()     # or each one's header would be kept
