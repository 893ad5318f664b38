"""Hand in what is in exercises/: `python hand_in.py FOLDER [NAME]`.

Writes FOLDER/NAME.zip, whole or not at all; handing in again replaces it. NAME is your login without it.
FOLDER is the one your instructor has named.
"""

import getpass
import os
import re
import sys
import zipfile
from pathlib import Path


def main(arguments: list[str]) -> str:
    if len(arguments) not in (1, 2):
        return __doc__
    folder, name = Path(arguments[0]), arguments[1] if len(arguments) == 2 else getpass.getuser()
    exercises = sorted((Path(__file__).parent / "exercises").glob("*.py"))
    if not folder.is_dir():
        return f"{folder} is no folder here; ask which one is meant"
    if not re.fullmatch(r"\w[\w.\-@]{0,99}", name) or name.endswith("."):
        return f"{name!r} cannot be a name: letters, digits and . _ - @"
    if not exercises:
        return "there is no exercises/ beside this file"
    target = folder / f"{name}.zip"
    draft = folder / f".{name}.{os.getpid()}.part"
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in exercises:
                archive.write(path, f"exercises/{path.name}")
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    print(f"{len(exercises)} files handed in as {target}")
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
