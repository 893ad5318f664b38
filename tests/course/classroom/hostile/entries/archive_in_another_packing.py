# verdict: missing
# words: compressed in another way
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.write(right, right.name)
