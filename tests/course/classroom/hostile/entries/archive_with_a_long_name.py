# verdict: passed
# words: its name has more than
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w") as archive:
        archive.writestr(f"{'a' * 60_000}.py", "")
        archive.write(right, right.name)
