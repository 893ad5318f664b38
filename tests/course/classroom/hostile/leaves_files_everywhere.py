# verdict: passed or wrong or error or crashed
# checks: test_flops
# words:
# wall: files stay where they are written
import os
import tempfile

right = linear_flops


def linear_flops(batch, in_features, out_features):
    for folder in ("/tmp", "/var/tmp", "/dev/shm", tempfile.gettempdir(), os.path.expanduser("~"), os.getcwd(), "/"):
        try:
            with open(os.path.join(folder, "hostile-was-here"), "w") as file:
                file.write("hello")
            os.chmod(file.name, 0o4755)
        except OSError:
            continue
    return right(batch, in_features, out_features)
