"""A class in N parts, for those who have only a job array or a CI matrix: `--shard I/N`, and `merge`."""

import json
import shutil
from pathlib import Path

from grader.classroom.intake import collect
from grader.classroom.run import cells
from grader.classroom.run.grade import Run
from grader.classroom.run.options import checks_of, manifest, rules_of, template_of
from grader.course.chapters import Chapter

SAME = ("version", "commit", "torch", "seed", "checks")                 # in the manifests of all shards
SAME_OPTIONS = ("class", "chapters", "timeout", "device", "walls")


def run(options) -> int:
    """`merge OUT SHARD...`: one run from all shards of it, with all that is handed back."""
    out = options.out.resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"OUT {options.out} must be a new or an empty folder")
    shards = {folder: manifest(folder / "manifest.json") for folder in options.shards}
    _complete(shards)
    graded_by = {shard["options"].get("grading", "") for shard in shards.values()}
    if len(graded_by) > 1 and not options.grading:
        named = " and ".join(sorted(path or "grading.toml" for path in graded_by))
        raise ValueError(f"the shards were graded by {named}: name one with --grading FILE")
    first, *others = shards.items()
    for other in others:
        _agree(first, other)
    students = {name: collect.Handed(name, said["source"], out / "submissions" / name, refused=said["refused"],
                                     names=said.get("names", []))
                for shard in shards.values() for name, said in shard["students"].items()}
    settled = {name: value for name, value in {**first[1]["options"], "shard": ""}.items() if name != "class"}
    rules, template = rules_of(options, settled), template_of(options, settled)
    this = Run(out, settled, first[1]["seed"],
               [students[name] for name in sorted(students, key=str.casefold)],
               {name: why for shard in shards.values() for name, why in shard["refused"].items()}, rules, template)
    this.checks = checks_of(first[1])
    this.layers = {layer: all(shard["layers"].get(layer) for shard in shards.values())
                   for shard in shards.values() for layer in shard["layers"]}
    for folder, shard in shards.items():
        for name in shard["students"]:
            shutil.copytree(folder / "submissions" / name, out / "submissions" / name)
            for chapter in map(Chapter, shard["options"]["chapters"]):
                cells.write(out, cells.read(folder, name, chapter) or _lost(folder, name, chapter))
    return this.finish()


def _complete(shards: dict[Path, dict]) -> None:
    """Raise ValueError unless each of the N shards is there once, and has ended."""
    names = {}
    for folder, shard in shards.items():
        name = shard["options"].get("shard")
        if not name:
            raise ValueError(f"{folder} was graded without --shard")
        if "ended" not in shard:
            raise ValueError(f"{folder} (shard {name}) has not ended: grade --resume goes on with it")
        if name in names:
            raise ValueError(f"{names[name]} and {folder} are both shard {name}")
        names[name] = folder
    counts = {collect.parse_shard(name)[1] for name in names}
    if len(counts) > 1:
        raise ValueError(f"these are shards of different runs: {', '.join(names)}")
    count = counts.pop()
    if missing := [f"{i}/{count}" for i in range(1, count + 1) if f"{i}/{count}" not in names]:
        raise ValueError(f"shard {', '.join(missing)} is missing")


def _agree(one: tuple[Path, dict], other: tuple[Path, dict]) -> None:
    """Raise ValueError where two shards were not asked the same by the same."""
    pairs = [(key, one[1][key], other[1][key]) for key in SAME]
    pairs += [(f"options.{key}", one[1]["options"][key], other[1]["options"][key]) for key in SAME_OPTIONS]
    pairs += [(f"hashes.{stem}", hashes, other[1]["hashes"][stem]) for stem, hashes in one[1]["hashes"].items()
              if stem in other[1]["hashes"]]       # a shard without students has none
    for key, mine, theirs in pairs:
        if mine != theirs:
            raise ValueError(f"{one[0]} and {other[0]} differ in {key}: {json.dumps(mine)[:80]} and "
                             f"{json.dumps(theirs)[:80]}")


def _lost(folder: Path, name: str, chapter: Chapter):
    raise ValueError(f"{cells.path(folder, name, chapter)} is missing or cannot be read")
