# verdict: missing
# words:
import io
import tarfile


def build(top, name, right):
    entry = tarfile.TarInfo(right.name)
    entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": right.name,
                         "GNU.sparse.realsize": str(1 << 50)}
    content = (b"1\n0\n0\n").ljust(512, b"\0")
    entry.size = len(content)
    with tarfile.open(top / f"{name}.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(entry, io.BytesIO(content))
