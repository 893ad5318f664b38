# verdict: missing
# words: a device is not read
import contextlib
import socket


def build(top, name, right):
    (top / name).mkdir()
    with contextlib.chdir(top / name), socket.socket(socket.AF_UNIX) as server:     # a path of 108 bytes at most
        server.bind(right.name)
