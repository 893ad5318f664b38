"""A student's model in one file: it needs torch alone, and writes what the course's writes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import einops
import pytest
import regex
import torch
from safetensors.torch import load_file, save_file

from grader.course import chapters
from grader.course.chapters import ROOT
from grader.front.assembly.alone import einops as alone
from grader.front.assembly.alone.regex import regex as alone_regex
from grader.front.assembly.alone.safetensors import SafetensorError, safe_open
from grader.judge.edits import edits
from solutions.ex15_generation import Sampling, decode_steps
from solutions.ex16_pretrained import load_pretrained, load_tokenizer
from tests.course.stubs import fresh

POCKET = ROOT / "assets/pocket"
PROMPT = "The for statement"

# Loads an assembled file where no library but torch is to be found, and writes the ids that it goes on with.
ASK = """
import importlib.util, json, sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BARRED:
            raise ModuleNotFoundError(name)
BARRED = {"exercises", "solutions", "grader", "given", "einops", "jaxtyping", "beartype", "regex", "safetensors",
          "tokenizers", "transformers"}
sys.meta_path.insert(0, Nothing())
spec = importlib.util.spec_from_file_location("model", sys.argv[1])
model = sys.modules["model"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(model)
import torch
torch.set_num_threads(1)
tokenizer, found = model.load_tokenizer(sys.argv[2]), []
pocket = model.load_pretrained(sys.argv[2], dtype=torch.float32)
for sampling in ({"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95}):
    steps = model.decode_steps(pocket, [tokenizer.encode(sys.argv[3])], 24, model.Sampling(**sampling),
                               rng=torch.Generator().manual_seed(0))
    found.append([id for [id] in steps])
print(json.dumps(found))
"""


def assembled(folder: Path, out: Path) -> subprocess.CompletedProcess:
    """`python -m grader assemble OUT` where these are the exercises."""
    return subprocess.run([sys.executable, "-m", "grader", "assemble", out], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "COURSE_EXERCISES": str(folder)})


def ids_of(file: Path) -> list[list[int]]:
    done = subprocess.run([sys.executable, "-c", ASK, file, POCKET, PROMPT], capture_output=True, text=True,
                          cwd=file.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def right() -> list[list[int]]:
    torch.set_num_threads(1)
    model, tokenizer = load_pretrained(POCKET, dtype=torch.float32), load_tokenizer(POCKET)
    return [[id for [id] in decode_steps(model, [tokenizer.encode(PROMPT)], 24, Sampling(**sampling),
                                         rng=torch.Generator().manual_seed(0))]
            for sampling in ({"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.95})]


def test_the_course_s_own_parts_are_marked_and_write_the_same_ids(tmp_path, right):
    done = assembled(fresh(tmp_path / "exercises"), tmp_path / "model.py")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "model.py").read_text("utf-8")
    assert "0 parts are yours" in done.stdout and "needs torch," in done.stdout
    assert "# ---- 13 transformer: the course's, as yours is not begun" in text
    assert "BEGIN SOLUTION" not in text and "To be written here" not in text
    assert ids_of(tmp_path / "model.py") == right


@pytest.mark.parametrize("which", [0, 1])
def test_parts_written_otherwise_write_the_same_ids(which, tmp_path, right):
    """Two students, each with another right way of every chapter that knows one."""
    folder, begun = fresh(tmp_path / "exercises"), []
    for chapter in chapters.chapters():
        ways = edits(chapter, "alternative")
        if int(chapter.number) <= 16 and len(ways) > which:
            ways[which].write(chapter, folder)
            begun.append(chapter)
    done = assembled(folder, tmp_path / "model.py")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "model.py").read_text("utf-8")
    assert len(begun) > 12 and text.count(": yours --") >= 10 and "course's stand in" not in done.stdout
    assert ids_of(tmp_path / "model.py") == right


def test_what_is_not_written_is_the_course_s_by_part_and_by_method(tmp_path, right):
    folder = fresh(tmp_path / "exercises")
    softmax, linear = folder / "ex05_softmax.py", folder / "ex03_linear.py"
    # a helper with the name of the course's, that means something else; the part that needs it is not written
    softmax.write_text(softmax.read_text("utf-8").replace("def logsumexp", "def _shifted(x):\n    return x - 1\n\n\n"
                                                          "def logsumexp", 1), "utf-8")
    source = chapters.find("03").solution.read_text("utf-8")
    begin, end = source.index("        # BEGIN SOLUTION\n        if x.shape[-1]"), source.index("def linear_backward")
    assert "# END SOLUTION" in source[begin:end]
    half = chapters.make_stub(source[:begin].replace("# BEGIN SOLUTION", "# mine").replace("# END SOLUTION", "# mine")
                              + source[begin:])
    linear.write_text(half, "utf-8")
    # two chapters with a helper of one name
    norm = folder / "ex04_normalization.py"
    norm.write_text("import torch as t\n\nSCALE = 1.0\n" + chapters.find("04").solution.read_text("utf-8").replace(
        "class RMSNorm", "def _need(x):\n    return x * SCALE * t.ones(())\n\n\nclass RMSNorm").replace(
        "        return (self.weight", "        x = _need(x)\n        return (self.weight"), "utf-8")
    done = assembled(folder, tmp_path / "model.py")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "model.py").read_text("utf-8")
    assert "# ---- 05 softmax: yours" in text
    assert "# The course's: yours is not written yet.\ndef softmax" in text
    assert "    # The course's: yours is not written yet.\n    def forward" in text
    assert "05 softmax" in done.stdout and "03 Linear" in done.stdout
    assert ids_of(tmp_path / "model.py") == right


def test_a_file_that_is_there_is_kept(tmp_path):
    folder, out = fresh(tmp_path / "exercises"), tmp_path / "model.py"
    out.write_text("mine", "utf-8")
    done = assembled(folder, out)
    [kept] = tmp_path.glob("model.*.py.bak")
    assert kept.read_text("utf-8") == "mine" and kept.name in done.stdout
    assert "kept" not in assembled(folder, out).stdout and len([*tmp_path.glob("*.bak")]) == 1


@pytest.mark.parametrize("out", [".", "nowhere/model.py"])
def test_out_is_a_file(out, tmp_path):
    done = assembled(fresh(tmp_path / "exercises"), tmp_path / out)
    assert done.returncode == 2 and "OUT must be a file in a folder that is there" in done.stderr


@pytest.mark.parametrize(("was", "becomes", "said"), [
    ("from .ex03_linear import Linear", "from . import ex03_linear as Linear", "line 15: it imports more than names"),
    ("from .ex03_linear import Linear", "from .ex03_linear import Linearr as Linear",
     "line 15: it imports Linearr, which exercises/ex03_linear.py does not have"),
    ("def sigmoid(", "def sigmoid((", "cannot be read"),
    ("import torch\n", "import torch\nimport exercises.ex05_softmax as five\nfive.x\n", "imports a module of the cour"),
])
def test_what_cannot_be_put_together_is_said(was, becomes, said, tmp_path):
    folder = fresh(tmp_path / "exercises")
    shutil.copy(chapters.find("08").solution, folder)
    file = folder / "ex08_feedforward.py"
    source = file.read_text("utf-8")
    assert was in source
    source = source.replace(was, becomes, 1)
    if "five" in becomes:
        source = source.replace("return self.down(silu(", "return five.y * self.down(silu(")
        assert "five.y" in source
    file.write_text(source, "utf-8")
    done = assembled(folder, tmp_path / "model.py")
    assert done.returncode == 2 and "ex08_feedforward.py" in done.stderr
    assert said.replace("exercises/ex03", "ex03") in done.stderr.replace(f"{folder}/", "").replace("solutions/", "")
    assert not (tmp_path / "model.py").exists()


@pytest.mark.parametrize(("pattern", "sizes"), [
    ("... seq (heads d) -> ... heads seq d", {"heads": 2}), ("a b c d -> (a b) c d", {}), ("... d -> d ...", {}),
    ("a b c (d e) -> e a (b d) c", {"e": 3}), ("a b c d -> a 1 b (c d)", {}), ("... d -> (...) d", {}),
    ("... -> (...)", {}), ("a ... d -> a d ...", {}),
])
def test_rearrange_is_einops_s(pattern, sizes):
    x = torch.arange(2. * 3 * 4 * 6).reshape(2, 3, 4, 6)
    assert torch.equal(alone.rearrange(x, pattern, **sizes), einops.rearrange(x, pattern, **sizes))


@pytest.mark.parametrize(("pattern", "sizes"), [
    ("a b c d -> a (b n) c d", {"n": 3}), ("a b c d -> a (n b) c d", {"n": 3}), ("... d -> ... d n", {"n": 2}),
    ("... d -> n ... (d two)", {"n": 2, "two": 2}),
])
def test_repeat_is_einops_s(pattern, sizes):
    x = torch.arange(2. * 3 * 4 * 6).reshape(2, 3, 4, 6)
    assert torch.equal(alone.repeat(x, pattern, **sizes), einops.repeat(x, pattern, **sizes))


@pytest.mark.parametrize(("pattern", "how", "sizes"), [
    ("... d -> ... 1", "mean", {}), ("a b c d -> b", "sum", {}), ("a b (c k) d -> a b c", "max", {"k": 2}),
    ("... d -> ...", "min", {}),
])
def test_reduce_is_einops_s(pattern, how, sizes):
    x = torch.arange(2. * 3 * 4 * 6).reshape(2, 3, 4, 6)
    assert torch.equal(alone.reduce(x, pattern, how, **sizes), einops.reduce(x, pattern, how, **sizes))


@pytest.mark.parametrize("pattern", ["... d_in, d_out d_in -> ... d_out", "b s d_in, d_out d_in -> d_out s b"])
def test_einsum_is_einops_s(pattern):
    x, weight = torch.arange(24.).reshape(2, 3, 4), torch.arange(20.).reshape(5, 4)
    assert torch.equal(alone.einsum(x, weight, pattern), einops.einsum(x, weight, pattern))


def test_letters_and_numbers_are_regex_s():
    """In a text of many scripts; characters younger than Python's own tables may differ."""
    text = "don't  naïve 東京 1½Ⅳ² Ωμέγα हिन्दी ‮ x_1\n\t a" + "".join(map(chr, range(32, 0x2000)))
    text = "".join(c for c in text if regex.match(r"\p{L}|\p{N}", c) is None
                   or alone_regex.match(r"[\p{L}\p{N}]", c))
    for pattern in (r"[ ]?\p{L}+", r"[ ]?\p{N}+|[ ]?[^\s\p{L}\p{N}]+"):
        assert alone_regex.findall(pattern, text) == regex.findall(pattern, text)


def test_safetensors_are_read_as_the_library_reads_them(tmp_path):
    file, tensors = tmp_path / "model.safetensors", {
        "a": torch.arange(6).reshape(2, 3), "bytes": torch.ones(3, dtype=torch.uint8),
        "half": torch.randn(5).bfloat16(), "none": torch.zeros(0, 4), "one": torch.tensor(2.0).double()}
    save_file(tensors, file, {"format": "pt"})
    with safe_open(file, framework="pt") as opened:
        for name, tensor in load_file(file).items():
            mine = opened.get_tensor(name)
            assert mine.dtype == tensor.dtype and torch.equal(mine, tensor)
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", b"\xff" * 40):
        file.write_bytes(damaged)
        with pytest.raises(SafetensorError):
            safe_open(file)
