"""One thread for every test, and the tiny policies and stages that several folders of tests
share."""

import os

# Before torch is imported: processes started by tests inherit them too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import fcntl
import shutil
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pytest
from small_models import small_model
from tiny_world import TINY_MODEL, TINY_WORLD


def pytest_configure(config):
    # Much of what holds to the last bit on a CPU does not on a GPU, which training would choose.
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call():
    forget_current_test()


def forget_current_test():
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # a fork server keeps that of its first test


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    stand_in = os.environ.get("KLEAR_STAND_IN") == "1" and "device" in item.fixturenames
    if not torch.cuda.is_available() and not stand_in:
        pytest.skip("needs an NVIDIA GPU that torch sees, and -m gpu")


@pytest.fixture(autouse=True)
def one_thread():
    forget_current_test()  # before the other fixtures, which may run stages
    # Only where a test already needs torch: many tests must run, and be quick, without it.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """A function that fills a folder of this run, once for all workers. No test may change it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def folder(name, fill):
        path, done = shared / name, shared / f"{name}.done"
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir()
                fill(path)
                done.touch()
        return path

    return folder


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A tokenizer of 280 words, chat template included."""
    from klearlib.miniature.base import train_tokenizer

    return train_tokenizer(
        ["user\nStart with 3 and apply +4 in turn.\nassistant\n"], vocab_size=280
    )


@pytest.fixture(scope="session")
def new_policy(tiny_tokenizer):
    """A function that makes a random Qwen3 of 280 words, the same one for the same seed.

    Its weights are large, so that its distributions are far from uniform.
    """
    import torch

    def make(seed: int = 0, *, dtype: torch.dtype = torch.float32):
        model = small_model(
            seed=seed,
            vocab_size=len(tiny_tokenizer),
            hidden_size=16,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            intermediate_size=32,
            max_position_embeddings=256,
            tie_word_embeddings=True,
            initializer_range=0.4,
            bos_token_id=None,
            eos_token_id=tiny_tokenizer.eos_token_id,
            pad_token_id=tiny_tokenizer.pad_token_id,
        )
        return model.to(dtype)

    return make


@pytest.fixture(scope="session")
def tiny_policy(new_policy):
    """One random Qwen3 for the tests that do not change its weights."""
    return new_policy(0)


@pytest.fixture(scope="session")
def tiny_stages(made_once):
    """Folders of the finished stages ``world``, ``base`` and ``sft`` of a world made in seconds.

    About one response in five of the SFT policy is correct at temperature 1.
    """
    root = made_once("tiny_stages", _make_tiny_stages)
    return SimpleNamespace(world=root / "world", base=root / "base", sft=root / "sft")


def _make_tiny_stages(root):
    from klearlib.miniature.base import pretrain
    from klearlib.miniature.world import build
    from klearlib.policy.compute import local_compute
    from klearlib.run.folder import RunFolder
    from klearlib.sft.train import train_sft

    schedule = {"seed": 0, "batch_size": 24, "compute": asdict(local_compute())}
    build(RunFolder(root / "world"), {}, **TINY_WORLD)
    inputs = {"world": root / "world"}
    pretrain(
        RunFolder(root / "base"), inputs, num_steps=40, learning_rate=6e-3, **schedule, **TINY_MODEL
    )
    train_sft(
        RunFolder(root / "sft"),
        inputs | {"base": root / "base"},
        num_steps=120,
        learning_rate=1e-2,
        final_learning_rate=1e-3,
        normalizer="token",
        **schedule,
    )
