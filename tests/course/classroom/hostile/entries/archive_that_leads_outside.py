# verdict: missing
# words: leads outside
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w") as archive:
        for place in ("../honest00/", "/tmp/", "C:/", "a/../../"):
            archive.writestr(f"{place}{right.name}", "raise SystemExit")
