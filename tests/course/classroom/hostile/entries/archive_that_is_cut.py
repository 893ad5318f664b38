# verdict: missing
# words: cannot be read
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w") as archive:
        archive.write(right, right.name)
    whole = (top / f"{name}.zip").read_bytes()
    (top / f"{name}.zip").write_bytes(whole[:len(whole) // 2])
