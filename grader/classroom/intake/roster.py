"""roster.csv: who is in the class, and by what each of them is known where things are handed in."""

import csv
import difflib
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
            people = [Person(**{name: (row.get(name) or "").strip() for name in COLUMNS}) for row in table]
        known: dict[str, int] = {}
        for line, person in enumerate(people, 2):
            if not is_name(person.called):
                raise ValueError(f"{path}, line {line}: {person.called!r} is no login and no name")
            for key in sorted({person.called.casefold()} | person.keys):
                if known.setdefault(key, line) != line:
                    raise ValueError(f"{path}, line {line}: {key!r} stands in line {known[key]} too")
        return cls(people)

    def person(self, source: Source) -> Person | None:
        """Whose this is: by what is theirs alone, else by the name, else as GitHub names clones, "homework-login"."""
        keys = {key.casefold() for key in source.keys}
        for fits in (lambda person: person.keys & keys,
                     lambda person: any(same_names(person.name, key) for key in source.keys),
                     lambda person: person.login and any(key.endswith(f"-{person.login.casefold()}") for key in keys)):
            if len(found := [person for person in self.people if fits(person)]) == 1:
                return found[0]
        return None

    def nearest(self, source: Source) -> str:
        """Whom it may have been meant to be, or ""."""
        names = {name.casefold(): person.called for person in self.people for name in (person.name, *person.keys)}
        for key in source.keys:
            if close := difflib.get_close_matches(key.casefold(), names, 1, 0.5):
                return names[close[0]]
        return ""
