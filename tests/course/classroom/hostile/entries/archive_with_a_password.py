# verdict: missing
# words: cannot be read
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w") as archive:
        archive.write(right, right.name)
    packed = bytearray((top / f"{name}.zip").read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(header) + flags] |= 1
    (top / f"{name}.zip").write_bytes(packed)
