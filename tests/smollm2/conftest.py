"""SmolLM2-135M-Instruct, a real language model, run by `make test-real` alone."""

import shutil
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "models" / "SmolLM2-135M-Instruct"


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skipif(not MODEL.exists(), reason=f"no {MODEL}: make smollm2"))


@pytest.fixture(scope="session")
def folder() -> Path:
    """Where the model is."""
    return MODEL


@pytest.fixture(scope="session")
def smollm2(folder):
    """The model, its tokenizer and the same model of transformers alone, all in fp32."""
    from transformers import AutoModelForCausalLM

    from klearlib.policy.load import load_policy

    model, tokenizer = load_policy(folder)
    return model, tokenizer, AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with no more than the notebooks."""
    shutil.copytree(MODEL.parents[1] / "notebooks", tmp_path / "notebooks")
    (tmp_path / "params").mkdir()
    monkeypatch.setenv("KLEAR_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path
