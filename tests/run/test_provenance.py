"""What a result says of its origin, and what it must not say."""

import json
import os
import platform
import subprocess
import sys

import torch

import klearlib
from klearlib.run import provenance as module
from klearlib.run.provenance import provenance


def test_versions_and_machine():
    found = provenance()
    assert found["klear"] == klearlib.__version__
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert found["cores"] >= 1
    assert found["memory_gb"] > 0
    assert found["utc"].endswith("Z")


def test_names_no_machine_and_no_path():
    text = json.dumps(provenance())
    assert platform.node() not in text
    assert os.path.expanduser("~") + "/" not in text
    assert os.getcwd() not in text


def test_commit_says_whether_the_code_differs(tmp_path, monkeypatch):
    package = tmp_path / "klearlib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(klearlib, "__file__", str(package / "__init__.py"))
    assert module._commit() is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *arguments], check=True)
    commit = module._commit()
    assert len(commit) == 40
    (tmp_path / "results").write_text("not code")
    assert module._commit() == commit
    (package / "__init__.py").write_text("x = 1")
    assert module._commit() == commit + "+"


def test_gpus_are_named_by_nvidia_smi(tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA H200'\necho 'NVIDIA H200'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    module.gpu_names.cache_clear()
    assert module.gpu_names() == ("NVIDIA H200", "NVIDIA H200")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    module.gpu_names.cache_clear()
    assert module.gpu_names() == ()
    module.gpu_names.cache_clear()


def test_run_imports_no_torch():
    code = (
        "import sys, klearlib.run.pool, klearlib.run.worker, klearlib.run.provenance as p\n"
        "p.provenance()\n"
        "print({'torch', 'numpy', 'transformers', 'IPython'} & {*sys.modules})"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == "set()", answer.stderr
