# verdict: missing
# words: it is there twice
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w") as archive:
        archive.write(right, right.name)
        archive.write(right, right.name.upper())
        archive.writestr(right.name.title(), "")
