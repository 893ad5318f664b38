# verdict: missing
# words: an archive in it is not read
import io
import zipfile


def build(top, name, right):
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.write(right, right.name)
    with zipfile.ZipFile(top / f"{name}.zip", "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
        archive.writestr("readme.txt", "see inner.zip")
