"""roster.csv: who is in the class, and by what each of them is known where things are handed in."""

import csv
import difflib
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.intake.sources import Source, is_name, same_names

COLUMNS = ("name", "login", "id", "email", "section")


@dataclass(frozen=True)
class Person:
    """Somebody in the class. Only the name or the login has to be there."""

    name: str = ""
    login: str = ""
    id: str = ""
    email: str = ""
    section: str = ""

    @property
    def called(self) -> str:
        """What grades and pages call them."""
        return self.login or self.name

    @property
    def keys(self) -> set[str]:
        """What is theirs alone."""
        mails = [text.partition("@")[0] for text in (self.login, self.email)]
        return {text.casefold() for text in (self.login, self.id, self.email, *mails)} - {""}


class Roster:
    """A class, as its file has it."""

    def __init__(self, people: list[Person]):
        self.people = people

    @classmethod
    def read(cls, path: Path) -> "Roster":
        """Read the file; a ValueError names the line that means nothing, or two people who cannot be told apart."""
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            if strange := sorted(set(table.fieldnames or ()) - set(COLUMNS)):
                raise ValueError(f"{path}: the column {strange[0]!r} has no meaning; known are {', '.join(COLUMNS)}")
            people = [Person(**{name: unicodedata.normalize("NFC", row.get(name) or "").strip() for name in COLUMNS})
                      for row in table]
        known: dict[str, int] = {}
        for line, person in enumerate(people, 2):
            if not is_name(person.called):
                raise ValueError(f"{path}, line {line}: {person.called!r} is no login and no name")
            for key in sorted({person.called.casefold()} | person.keys):
                if known.setdefault(key, line) != line:
                    raise ValueError(f"{path}, line {line}: {key!r} stands in line {known[key]} too")
        return cls(people)

    def called(self, name: str) -> Person | None:
        """Who is called this in grades and on pages."""
        return next((person for person in self.people if person.called == name), None)

    def person(self, source: Source) -> Person | None:
        """Whose this is: by what is theirs alone, else by the name, else as GitHub names clones, "homework-login"."""
        found = self._fit(source)
        return found[0] if len(found) == 1 else None

    def why_nobody(self, source: Source) -> str:
        """Why nobody was found, in words."""
        if found := self._fit(source):
            return f"{' and '.join(person.called for person in found)} fit it in the roster"
        if self._by_keys(source) and self._by_name(source):
            number, name = (found[0].called for found in (self._by_keys(source), self._by_name(source)))
            return f"its number or login is that of {number} in the roster, its name that of {name}"
        near = self._nearest(source)
        return "nobody in the roster" + (f"; the nearest is {near}" if near else "")

    def _fit(self, source: Source) -> list[Person]:
        own, named = self._by_keys(source), self._by_name(source)
        if own and named:           # where they are not of one mind, neither is believed
            return [person for person in own if person in named]
        if len(named) > 1:
            return [person for person in named if person.id and person.id == source.number] or named
        return own or named or self._by_clone(source)

    def _by_keys(self, source: Source) -> list[Person]:
        keys = {key.casefold() for key in source.keys}
        return [person for person in self.people if person.keys & keys]

    def _by_name(self, source: Source) -> list[Person]:
        return [person for person in self.people if any(same_names(person.name, key) for key in source.keys)]

    def _by_clone(self, source: Source) -> list[Person]:
        """The one with the longest login: "week-1-anna-smith" is anna-smith's, and not smith's."""
        return sorted((person for person in self.people if person.login and any(
            key.casefold().endswith(f"-{person.login.casefold()}") for key in source.keys)),
            key=lambda person: len(person.login))[-1:]

    def _nearest(self, source: Source) -> str:
        """Whom it may have been meant to be, or ""."""
        names = {name.casefold(): person.called for person in self.people for name in (person.name, *person.keys)}
        for key in source.keys:
            if close := difflib.get_close_matches(key.casefold(), names, 1, 0.5):
                return names[close[0]]
        return ""
