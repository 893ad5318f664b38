# verdict: passed
# words:
import zipfile


def build(top, name, right):
    with zipfile.ZipFile(top / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("data.bin", "w", force_zip64=True) as file:
            for _ in range(1 << 8):
                file.write(bytes(4 << 20))
        archive.write(right, right.name)
