# verdict: missing
# words: files and folders
import tarfile


def build(top, name, right):
    with tarfile.open(top / f"{name}.tgz", "w:gz", compresslevel=1) as archive:
        for number in range(20_000):
            entry = tarfile.TarInfo(f"d{number}")
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        archive.add(right, right.name)
