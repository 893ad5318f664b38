# verdict: missing
# words:
import io
import tarfile


def build(top, name, right):
    entry = tarfile.TarInfo(right.name)
    entry.pax_headers = {"comment": "x" * (300 << 20)}
    with tarfile.open(top / f"{name}.tgz", "w:gz", compresslevel=1) as archive:
        archive.addfile(entry, io.BytesIO())
