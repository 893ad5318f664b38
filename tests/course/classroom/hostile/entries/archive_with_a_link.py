# verdict: missing
# words: a link is not read
import stat
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w") as archive:
        entry = zipfile.ZipInfo(right.name)
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, str(right))
