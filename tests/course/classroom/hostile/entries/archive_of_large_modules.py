# verdict: missing
# words: cannot be taken
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(150):
            archive.writestr(f"a{number}.py", b"#" * (1 << 20 | 1))
        archive.write(right, right.name)
