# verdict: missing
# words: is not read
import tarfile


def build(top, name, right):
    with tarfile.open(top / f"{name}.tar", "w") as archive:
        for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE):
            entry = tarfile.TarInfo(right.name)
            entry.type, entry.linkname = kind, str(right)
            archive.addfile(entry)
