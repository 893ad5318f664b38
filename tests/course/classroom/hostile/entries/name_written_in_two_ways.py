# verdict: refused
# words: handed in twice
import unicodedata


def build(top, name, right):
    for form in ("NFC", "NFD"):
        (top / unicodedata.normalize(form, "Noël")).mkdir()
    return "Noël"
