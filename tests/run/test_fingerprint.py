"""Which edits of code change the fingerprint, and which do not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klearlib.errors import KlearError, ParameterError
from klearlib.run import fingerprint
from klearlib.run.fingerprint import code_fingerprint

FILES = {
    "__init__.py": "",
    "train.py": '''
"""Trains."""
from __future__ import annotations
from typing import TYPE_CHECKING

from .parts import loss

if TYPE_CHECKING:
    from paket.typing_only import Thing

PLAN = "paket.planned:run"

def train(x):
    """Train."""
    from paket.sub.late import y
    return loss.loss(x)  # the loss
''',
    "parts/__init__.py": "from paket.parts.hidden import h",
    "parts/hidden.py": "def h(): return 1",
    "parts/loss.py": "from ..deep import base\n\ndef loss(x):\n    return base(x)",
    "deep.py": "def base(x): return x",
    "sub/__init__.py": "s = 1",
    "sub/late.py": "y = 1",
    "planned.py": "def run(): return 1",
    "typing_only.py": "class Thing: pass",
    "unused.py": "z = 1",
    "parts/table/numbers.csv": "1,2",
}


@pytest.fixture
def paket(tmp_path, monkeypatch):
    root = tmp_path / "paket"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return root


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("train.py", FILES["train.py"].replace("loss.loss(x)", "loss.loss(x + 1)")),
        ("parts/loss.py", FILES["parts/loss.py"].replace("base(x)", "base(2 * x)")),
        ("deep.py", "def base(x): return -x"),
        ("parts/__init__.py", "from paket.parts.hidden import h\nk = 1"),
        ("parts/hidden.py", "def h(): return 2"),
        ("sub/late.py", "y = 2"),
        ("sub/__init__.py", "s = 2"),
        ("planned.py", "def run(): return 2"),
        ("parts/table/numbers.csv", "1,3"),
    ],
)
def test_edit_of_any_code_in_use_changes_it(paket, file, text):
    before = code_fingerprint("paket.train")
    (paket / file).write_text(text)
    changed = code_fingerprint("paket.train")
    assert changed != before
    (paket / file).write_text(FILES[file])
    assert code_fingerprint("paket.train") == before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("train.py", FILES["train.py"].replace("# the loss", "# another remark")),
        ("train.py", FILES["train.py"].replace("Train.", "Train it.\n\n    Well.")),
        ("train.py", FILES["train.py"].replace('"""Trains."""', "")),
        ("deep.py", "# why\ndef base(x):\n    '''New.'''\n\n    return (x)"),
        ("__init__.py", '__version__ = "2.0"'),
        ("typing_only.py", "class Thing: x = 1"),
        ("unused.py", "z = 2"),
    ],
)
def test_comments_docstrings_and_unused_code_do_not(paket, file, text):
    before = code_fingerprint("paket.train")
    (paket / file).write_text(text)
    assert code_fingerprint("paket.train") == before


def test_equal_in_another_process_without_importing(paket):
    code = (
        "import sys; from klearlib.run.fingerprint import code_fingerprint as f;"
        "print(f('paket.train'), 'paket' in sys.modules)"
    )
    path = "import sys; sys.path[:0] = " + repr([str(paket.parent), *sys.path]) + "\n"
    answer = subprocess.run(
        [sys.executable, "-c", path + code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == [code_fingerprint("paket.train"), "False"]


STAGES = ("klearlib.rl.train", "klearlib.sft.train", "klearlib.evaluate.harness")


def _fingerprints(library):
    """Of the stages' code in a copy of the library."""
    code = (
        "import sys; from klearlib.run.fingerprint import code_fingerprint as f;"
        f"print(*map(f, {STAGES}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(library.parent)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(STAGES, answer.stdout.split(), strict=True))


def test_a_reworded_message_retrains_nothing_and_another_loss_does(tmp_path):
    library = tmp_path / "klearlib"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(fingerprint.__file__).parents[1], library, ignore=ignored)
    before = _fingerprints(library)
    for file in ("errors.py", "run/files.py", "run/worker.py", "run/progress.py", "rl/alarms.py"):
        path = library / file
        path.write_text(path.read_text() + "\nREWORDED = 'another message'\n")
    assert _fingerprints(library) == before
    for file, stages in (
        ("rl/objective.py", {"klearlib.rl.train"}),
        ("run/seeding.py", set(STAGES)),
    ):
        path = library / file
        path.write_text(path.read_text() + "\nANOTHER = 1\n")
        after = _fingerprints(library)
        assert {stage for stage in STAGES if after[stage] != before[stage]} == stages
        before = after


def test_what_is_no_module_or_no_python_is_named(paket):
    with pytest.raises(ParameterError, match=r"no module 'paket\.trian'"):
        code_fingerprint("paket.trian")
    with pytest.raises(ParameterError, match="no module 'nothing_of_this_name'"):
        code_fingerprint("nothing_of_this_name")
    (paket / "deep.py").write_text("def base(:")
    with pytest.raises(KlearError, match=r"deep\.py, line 1"):
        code_fingerprint("paket.train")
