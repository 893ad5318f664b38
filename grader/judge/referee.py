"""The trusted side: it asks the reference, keeps what known mistakes have answered, and compares.

It is a process of its own, which loads the reference and the checks and never a submission or a mistake: their
answers reach it as bytes, which it decodes without believing them.
"""

import contextlib
import dataclasses
import itertools
import re
from functools import cached_property
from pathlib import Path

import torch

from grader.course import checks
from grader.judge import compare, resemblance
from grader.judge.record import Record
from grader.sandbox import wire
from grader.sandbox.worker import LoadedChapter
from grader.sandbox.worker import main as serve_requests

ARITHMETIC = ("ZeroDivisionError", "OverflowError", "FloatingPointError")
MOST_PAIRS = 20             # of mistakes that a likeness lists
SEEN_AFTER = 2              # facts comes what an answer has in common with the right one


def main(limit: bool = False) -> None:
    serve_requests(limit, Referee().serve)


class Given:
    """What was given to a question: a reply, and the answer in it, or None."""

    def __init__(self, reply: dict, answer):
        self.reply, self.answer = reply, answer

    @cached_property
    def parts(self) -> dict:
        """The answer's parts, by path: looked up once for each mistake that it is compared with."""
        return compare.parts(self.answer)


class Referee:
    """Answers of the reference and of mistakes, by chapter and check."""

    def __init__(self):
        self.references: dict[str, LoadedChapter | Record] = {}
        self.right: dict[tuple, Given] = {}
        self.shown: dict[tuple, tuple[dict, bytes]] = {}    # the same, as it was sent
        self.wrong: dict[tuple, dict[int, tuple]] = {}     # of mistakes, with their wrong parts

    def serve(self, do: str, arguments: dict, body: bytes) -> tuple[dict, bytes]:
        if do in ("judge", "learn", "liken", "alike"):       # these carry an answer, which may be anything
            try:
                return getattr(self, do)(**arguments, body=body), b""
            except Exception as error:
                return {"refused": f"{type(error).__name__}: {error}"[:500]}, b""
        if do in ("collect", "prepare"):
            return getattr(self, do)(**arguments), b""
        if do == "show":
            return self.shown[_place(**arguments)]
        raise ValueError(f"unknown request {do!r}")

    def collect(self, chapter: str, tests: list) -> dict:
        """The checks of a chapter's test files."""
        found = [check for test in tests
                 for check in checks.collect(Path(test["path"]), chapter, test["hidden"])]
        return {"checks": [{**dataclasses.asdict(check), "names": sorted(check.names)}
                           for check in found]}

    def prepare(self, scan: dict, questions: list, record: str = "") -> dict:
        """Load a chapter's reference, or its record, and ask it these questions. {"broken": why not} or nothing."""
        chapter = scan["chapter"]
        if chapter not in self.references:
            if scan["device"] == "cuda" and not torch.cuda.is_available():
                return {"broken": "torch finds no CUDA device here"}
            reference = Record(Path(record)) if record else LoadedChapter(**scan)
            if not record and (broken := reference.scan() or reference.load()):
                return {"broken": f"{chapter}: {broken}"}
            self.references[chapter] = reference
        for question in questions:
            reply, body = self.references[chapter].ask(**question)
            if "answer" not in reply:
                return {"broken": f"{chapter}, {question['function']}: {reply}"}
            self.right[_place(chapter, question)] = Given(reply, wire.decode(reply["answer"], body))
            self.shown[_place(chapter, question)] = reply, body
        return {"broken": None}

    def judge(self, chapter, question, reply, rtol, body) -> dict:
        """Is a submission's answer right? {"facts": [...]}; no facts where it is."""
        if self._bit_for_bit(chapter, question, reply, body):
            return {"facts": []}
        try:
            mine = self._decode(chapter, question, reply, body)
        except wire.TooLarge as error:
            return {"facts": [f"you gave {error}, many times what is expected"]}
        found = self._wrong_parts(chapter, question, mine, rtol)
        undue = [path for path, said in found.items() if said[0] == compare.UNDUE]
        facts = [f"{_listed(undue)}{compare.UNDUE}"] if undue else []
        for path, said in ((path, said[path in undue:]) for path, said in found.items()):
            facts += [f"{path}: {line}" if path and not i else line for i, line in enumerate(said)]
        seen, wrong = "", {path: said for path, said in found.items() if said != [compare.UNDUE]}
        with contextlib.suppress(Exception):        # it is a help, and decides nothing
            seen = resemblance.seen(mine.answer, self.right[_place(chapter, question)].answer, wrong,
                                    self.references[chapter].device, rtol)
        return {"facts": [*facts[:SEEN_AFTER], *filter(None, [seen]), *facts[SEEN_AFTER:]]}

    def learn(self, chapter, question, mistake, by_size, reply, rtol, body) -> dict:
        """Keep what a mistake answers, if it is wrong, and say so. by_size: what tells it is the size of its error."""
        if self._bit_for_bit(chapter, question, reply, body):
            return {"wrong": False}
        theirs = self._decode(chapter, question, reply, body)
        if wrong := self._wrong_parts(chapter, question, theirs, rtol):
            theirs.parts = {path: theirs.parts.get(path) for path in wrong}      # they are asked for no other
            self._mistakes(chapter, question)[mistake] = theirs, wrong, by_size
        return {"wrong": bool(wrong)}

    def liken(self, chapter, question, reply, rtol, body, among=None) -> dict:
        """Which mistakes, of all or among these, give this wrong answer, wholly or in every part they get wrong.

        {"whole": [numbers], "part": [numbers], "size": [numbers], "against": [numbers], "both": [pairs]}: `size` are
        mistakes of precision with errors of this size, `against` are mistakes that would have shown
        in this answer and did not; `both` are two that give all its wrong parts between them. "pairs" are
        any two, first those that together get the same parts wrong.
        """
        mine = self._decode(chapter, question, reply, body)
        known = self._mistakes(chapter, question)
        known = {number: known[number] for number in known if among is None or number in among}
        likeness = self._liken(chapter, question, mine, rtol, known)
        if not likeness["whole"] and self._drop_undue(chapter, question, mine):
            likeness = self._liken(chapter, question, mine, rtol, known)
        return likeness

    def _drop_undue(self, chapter, question, mine: Given) -> bool:
        """Take it that no gradient is required where none is due, which is said anyway; whether one was."""
        right, found = compare.leaves(self.right[_place(chapter, question)].answer), False
        for path, leaf in compare.leaves(mine.answer).items() if mine.answer else ():
            if leaf.requires_grad and path in right and not right[path].requires_grad:
                leaf.requires_grad, found = False, True
        return found

    def _liken(self, chapter, question, mine: Given, rtol, known: dict) -> dict[str, list]:
        likeness: dict[str, list] = {"whole": [], "part": [], "size": [], "against": []}
        mine_wrong = self._wrong_parts(chapter, question, mine, rtol)
        right = self.right[_place(chapter, question)]
        for number, (theirs, wrong, by_size) in known.items():
            if self._agree(chapter, mine, theirs, wrong, rtol):
                kind = "whole" if wrong.keys() >= mine_wrong.keys() else "part"
            elif by_size and wrong.keys() == mine_wrong.keys() and all(
                    compare.rounded_alike(*(given.parts.get(path) for given in (mine, theirs, right)))
                    for path in wrong):
                kind = "size"
            else:
                kind = "against"
            likeness[kind].append(number)
        parts = [number for number in likeness["part"] if _telling(right.answer, known[number][1])]
        both = (pair for pair in itertools.combinations(parts, 2)
                if known[pair[0]][1].keys() | known[pair[1]][1].keys() >= mine_wrong.keys())
        mine_paths, paths = {*mine_wrong}, {number: {*wrong} for number, (_, wrong, _) in known.items()}
        pairs = sorted(itertools.combinations(known, 2), key=lambda pair: len(
            (paths[pair[0]] | paths[pair[1]]) ^ mine_paths))
        return {**likeness, "both": list(itertools.islice(both, MOST_PAIRS)), "pairs": pairs[:MOST_PAIRS**2]}

    def alike(self, chapter, question, reply, other, split, rtol, body) -> dict:
        """Are two wrong answers the same? {"alike": bool}. split: where the other's bytes begin."""
        mine, theirs = (self._decode(chapter, question, header, part) for header, part in (
            (reply, body[:split]), (other, body[split:])))
        for given in (mine, theirs):
            self._drop_undue(chapter, question, given)
        wrong = [self._wrong_parts(chapter, question, given, rtol) for given in (mine, theirs)]
        right = self.right[_place(chapter, question)].answer
        return {"alike": wrong[0].keys() == wrong[1].keys() and _telling(right, wrong[0])
                and self._agree(chapter, mine, theirs, wrong[0], rtol)}

    def _mistakes(self, chapter, question) -> dict:
        return self.wrong.setdefault(_place(chapter, question), {})

    def _decode(self, chapter, question, reply: dict, body: bytes) -> Given:
        """A reply with its answer; wire.TooLarge where that holds far more than the right one."""
        if "answer" not in reply:
            return Given(reply, None)
        right, content = self.shown[_place(chapter, question)]
        return Given(reply, wire.decode(reply["answer"], body, wire.Size.beside(right["answer"], content)))

    def _bit_for_bit(self, chapter, question, reply, body) -> bool:
        """Whether an answer is the reference's, which need not be decoded then."""
        right_reply, right_body = self.shown[_place(chapter, question)]
        return body == right_body and all(reply.get(part) == right_reply[part] for part in ("answer", "changed"))

    def _wrong_parts(self, chapter, question, given: Given, rtol) -> dict[str, list[str]]:
        """The parts of an answer that are wrong, by path."""
        right = self.right[_place(chapter, question)]
        if given.answer is None:
            return {"": [given.reply.get("raised", "stopped")]}
        found = compare.differences(given.answer, right.answer, self.references[chapter].device, rtol)
        changed = set(given.reply.get("changed", ())) - set(right.reply["changed"])
        if changed:
            found["inputs"] = ["your code changed its input in place; the caller still needs it"]
        return found

    def _agree(self, chapter, mine: Given, theirs: Given, paths, rtol) -> bool:
        """Whether two answers say the same in these parts."""
        if mine.answer is None or theirs.answer is None:
            return mine.answer is theirs.answer and _same_exception(mine.reply, theirs.reply)
        for path in paths:
            if path == "inputs":
                if mine.reply.get("changed") != theirs.reply.get("changed"):
                    return False
                continue
            one, other = mine.parts.get(path), theirs.parts.get(path)
            if one is None or other is None:
                return False
            if not compare.alike(one, other, self.references[chapter].device, rtol):
                return False
        return True


def _telling(right, paths) -> bool:
    """Whether these wrong parts of an answer can speak for two mistakes: a yes for a no has too many causes."""
    known = compare.leaves(right)
    return any(path not in known or known[path].kind != "bool" for path in paths)


def _listed(paths: list[str]) -> str:
    """These parts before what is said of all of them."""
    more = f" and {len(paths) - 3} more" * (len(paths) > 3)
    return f"{', '.join(paths[:3])}{more}: " if any(paths) else ""


def _place(chapter: str, question: dict) -> tuple:
    return chapter, *sorted(question.items())


def _same_exception(mine: dict, theirs: dict) -> bool:
    """A deliberate ValueError is told by the arguments it names, all others by what raised them, and where.

    Of Python's arithmetic the words differ from one version to the next: it is told by the operation alone. Words that
    hold numbers speak of this very input, so that how they came about may differ.
    """
    if mine.get("raised") != theirs.get("raised"):
        return False
    place, other = mine.get("place"), theirs.get("place")       # (part, operation)
    if place and other:
        arithmetic = mine["raised"] in ARITHMETIC or place[1].startswith("math.")
        if arithmetic and place[1]:
            return place == other
    if mine["raised"] == "ValueError" and mine["named"]:
        return mine["named"] == theirs["named"]
    words = [re.sub(r"0x[0-9a-f]{6,}", "0x", said["message"]) for said in (mine, theirs)]
    if words[0] != words[1] or not place or not other:
        return words[0] == words[1]
    return place == other or place[0] == other[0] and any(map(str.isdigit, words[0]))
