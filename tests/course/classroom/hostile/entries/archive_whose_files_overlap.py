# verdict: missing
# words: cannot be read
import struct
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a000.py", bytes(900_000))
    packed = (top / f"{name}.zip").read_bytes()
    start, end = packed.index(b"PK\x01\x02"), packed.index(b"PK\x05\x06")
    entry, count = packed[start:end], 400       # all of them the same bytes, under names of their own
    entries = b"".join(entry.replace(b"a000", b"a%03d" % number) for number in range(count))
    last = packed[end:end + 8] + struct.pack("<HHLLH", count, count, len(entries), start, 0)
    (top / f"{name}.zip").write_bytes(packed[:start] + entries + last)
