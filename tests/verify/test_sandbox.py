"""The isolation tiers: how one is chosen, what it keeps in, what is left when processes die."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes import descendants, is_running, one_tier_is_slow, wait_until

import klearlib
from klearlib.errors import KlearError, MissingAsset
from klearlib.records import TestCase
from klearlib.suite import doctor
from klearlib.verify import pool, program_judge, sandbox
from klearlib.verify.programs import ProgramJob, run_many, run_tests
from klearlib.verify.sandbox_server import FOLDER_PREFIX

ROOT = Path(klearlib.__file__).resolve().parents[1]
LIMITS = {"timeout_s": 5.0, "memory_mb": 256}


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left():
    before = folders()
    yield
    pool.close_pool()
    assert wait_until(lambda: folders() <= before)


def folders() -> set[str]:
    return {p.name for p in Path(tempfile.gettempdir()).glob(FOLDER_PREFIX + "*")}


def told(source: str, **settings) -> str:
    """What a program says by an exception."""
    job = {**LIMITS, **settings}
    report = run_tests(textwrap.dedent(source), [TestCase("?", stdin="")], **job)
    assert report.outcomes == ("runtime_error",), report
    return report.messages[0].removeprefix("ValueError: ").rpartition(" (line")[0]


def half_right(num: int, seconds: float = 0.0) -> list[ProgramJob]:
    """Jobs of four tests: three that pass and one that is wrong where the job's number is odd."""
    return [
        ProgramJob(
            f"import time; time.sleep({seconds}); print(int(input()) + {n})",
            [TestCase(str(k + n + (n % 2 and k == 3)), stdin=str(k)) for k in range(4)],
            timeout_s=5.0,
            memory_mb=64,
        )
        for n in range(num)
    ]


EXPECTED = [1.0, 0.75]


# Choosing a tier


@pytest.fixture
def nothing_is_known():
    sandbox._find.cache_clear()
    yield
    sandbox._find.cache_clear()


def test_the_strongest_tier_that_works_is_taken(monkeypatch, nothing_is_known):
    monkeypatch.delenv(sandbox.FORCE, raising=False)
    reasons = {"namespaces": "forbidden", "landlock": ""}
    monkeypatch.setattr(sandbox, "_why_not", reasons.get)
    assert sandbox.active_tier() == sandbox.Tier("landlock", "namespaces: forbidden")
    monkeypatch.setattr(sandbox, "_why_not", None)  # not asked again
    assert sandbox.active_tier().name == "landlock"


def test_a_tier_that_does_not_work_cannot_be_forced(monkeypatch, nothing_is_known):
    monkeypatch.setattr(sandbox, "_why_not", lambda name: "forbidden")
    monkeypatch.setenv(sandbox.FORCE, "landlock")
    with pytest.raises(KlearError, match=r"KLEAR_SANDBOX=landlock .*forbidden.*unset"):
        sandbox.active_tier()


def test_without_a_tier_programs_need_the_ugly_flag(monkeypatch, nothing_is_known):
    monkeypatch.setattr(sandbox, "_why_not", lambda name: "forbidden")
    monkeypatch.delenv(sandbox.FORCE, raising=False)
    with pytest.raises(MissingAsset, match="KLEAR_RUN_UNTRUSTED_PROGRAMS_WITHOUT_SANDBOX=yes"):
        run_tests("print(1)", [TestCase("1", stdin="")], **LIMITS)
    finding = doctor._sandbox()
    assert finding.required and "forbidden" in finding.fix
    monkeypatch.setenv(sandbox.UNSAFE, "1")
    with pytest.raises(MissingAsset):
        sandbox.active_tier()
    monkeypatch.setenv(sandbox.UNSAFE, "yes")
    assert sandbox.active_tier().name == "none"
    assert "NO ISOLATION" in doctor._sandbox().found
    assert run_tests("print(1)", [TestCase("1", stdin="")], **LIMITS).pass_rate == 1


def test_a_tier_that_lets_something_out_is_not_taken(monkeypatch):
    monkeypatch.setattr(sandbox, "_ESCAPES", "print('fork')")
    assert "an escape succeeded" in sandbox._why_not("landlock")
    monkeypatch.setattr(sandbox, "_WORKS", "1 / 0")
    assert "no program runs: runtime_error" in sandbox._why_not("landlock")


def test_the_probe_sees_every_escape_where_there_is_no_sandbox():
    """The canary's attempts are real: without a sandbox each of them works for its owner."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "secret"
        secret.write_text("secret")
        script = sandbox._ESCAPES.format(secret=str(secret), folder=folder)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        ).stdout
    # A parent's memory is readable for root and, on some systems, for a plain user.
    assert set(done.split()) >= {"read", "write", "create", "socket", "signal", "limits", "fork"}


def test_the_tier_that_was_asked_for_is_active_and_doctor_names_it(tier, monkeypatch):
    assert sandbox.active_tier().name == tier
    finding = doctor._sandbox()
    assert tier in finding.found and not finding.fix
    monkeypatch.setenv(sandbox.FORCE, "docker")
    with pytest.raises(KlearError, match="namespaces, landlock, got 'docker'"):
        sandbox.active_tier()


# What is kept in

CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    return "ok" if result >= 0 else ctypes.get_errno()
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
def test_system_calls_are_denied_alike(tier):
    source = f"""
        {textwrap.indent(CALLS, "        ").strip()}
        import os
        own, parent = os.getpid(), os.getppid()
        raise ValueError([
            call(57), call(58), call(435, 0, 0),         # fork, vfork, clone3
            call(41, 1, 1, 0), call(53, 1, 2, 0, 0),     # socket, socketpair of datagrams
            call(62, parent, 0), call(62, -1, 0), call(62, 0, 0), call(62, own, 0),
            call(302, parent, 7, 0, 0), call(302, 0, 7, 0, 0),
            call(101, 0, 0, 0, 0), call(319, 0, 0), call(272, 0), call(425, 1, 0),
            call(72, 0, 8, own), call(16, 0, 0x5412, 0),  # F_SETOWN, TIOCSTI
            call(157, 1, 0, 0, 0, 0), call(157, 4, 1, 0, 0, 0),
            call(105, 0), call(141, 2, 0, 19), call(500), call(0x40000000 + 39),
            call(90, 0, 0), call(29, 0, 100, 0o1666),
        ])
    """
    eperm, enosys = 1, 38
    expected = [
        *(eperm, eperm, enosys),
        *(eperm, eperm),
        *(eperm, eperm, eperm, "ok"),
        *(eperm, "ok"),
        *(eperm, eperm, eperm, eperm),
        *(eperm, eperm),
        *(eperm, eperm),
        *(eperm, eperm, enosys, enosys),
        *(eperm, eperm),
    ]
    assert told(source) == str(expected)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="32-bit calls are those of x86")
def test_a_call_by_the_32_bit_door_kills(tier):
    source = """
        import ctypes, mmap
        code = mmap.mmap(-1, 4096, prot=7)
        code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid); int 0x80; ret
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    """
    report = run_tests(textwrap.dedent(source), [TestCase("", stdin="")], **LIMITS)
    assert report.outcomes == ("runtime_error",)
    assert "SIGSYS" in report.messages[0] or "SIGSEGV" in report.messages[0]


def test_files_outside_cannot_be_read_or_written(tier, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    for path in (tmp_path, *tmp_path.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o055)
    source = f"""
        import os
        def attempt(*arguments):
            try:
                return open(*arguments).read(3)
            except OSError as error:
                return "denied"
        raise ValueError([
            attempt({str(secret)!r}), attempt({str(secret)!r}, "a"), attempt("/etc/passwd"),
            attempt("/proc/1/environ"), attempt("/proc/self/maps"),
            attempt(f"/proc/{{os.getppid()}}/mem", "rb"),
            attempt({str(ROOT / "pyproject.toml")!r}), attempt({str(tmp_path / "new")!r}, "w"),
            attempt("/dev/shm/klear", "w"), attempt("/dev/kmsg"), attempt(os.__file__, "a"),
            attempt("/dev/null"), len(attempt(os.__file__)),
        ])
    """
    assert told(source) == str(["denied"] * 11 + ["", 3])
    assert secret.read_text() == "secret"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["secret.txt"]


def test_programs_have_no_rights_to_lose(tier):
    source = """
        import ctypes, struct
        header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
        sets = (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capget(header, sets) == 0
        raise ValueError([list(sets), ctypes.CDLL(None).prctl(39, 0, 0, 0, 0)])
    """
    assert told(source) == str([[0] * 6, 1])


@one_tier_is_slow
def test_time_that_others_take_is_not_the_program_s(tier):
    """Four programs that work for 0.5 s each fit into 1.5 s, also side by side on one core."""
    core = min(os.sched_getaffinity(0))
    source = f"""
        import os, time
        os.sched_setaffinity(0, [{core}])
        while time.process_time() < 0.5: pass
        print(1)
    """
    jobs = [
        ProgramJob(
            textwrap.dedent(source) + f"# {n}",
            [TestCase("1", stdin="")],
            timeout_s=1.5,
            memory_mb=64,
        )
        for n in range(4)
    ]
    assert [r.outcomes[0] for r in run_many(jobs, workers=4)] == ["passed"] * 4


# When processes die


PROCESSES = ["keeper", "fork server", "program", "child"]


@one_tier_is_slow
@pytest.mark.parametrize("who", PROCESSES)
def test_a_fork_server_killed_mid_batch_costs_no_report(tier, who):
    pool.close_pool()  # others may have asked for more judges
    seen = set()

    def is_killed() -> bool:
        family = descendants(worker_pids()[-1])
        if len(family) != len(PROCESSES) or descendants(family[-2]) != family[-1:]:
            return False  # between two tests, or between two programs
        is_young = seen and family[-1] not in seen  # an older child may be at its end
        seen.add(family[-1])
        if is_young:
            try:
                os.kill(family[PROCESSES.index(who)], signal.SIGKILL)
            except ProcessLookupError:  # it ended in this moment
                return False
        return is_young

    run_many(half_right(1), workers=1)
    with ThreadPoolExecutor(1) as executor:
        batch = executor.submit(run_many, half_right(4, seconds=0.15), workers=1)
        assert wait_until(is_killed)
        assert not batch.done()
        reports = batch.result(timeout=60)
    if who == "child":  # killed from outside: this looks like a machine that ran out of memory
        # One test, or all four of a program where it was the child that compiles it.
        assert sum(r.outcomes.count("memory_limit") for r in reports) in (1, 4)
    else:
        assert [r.pass_rate for r in reports] == EXPECTED * 2


def test_a_sandbox_that_keeps_dying_is_a_judge_error(monkeypatch):
    class Dead:
        def __init__(self, tier):
            raise program_judge.SandboxEndedError("no memory")

    monkeypatch.setattr(program_judge, "SandboxProcess", Dead)
    test = {"kind": "stdin", "given": "", "expected": ""}
    job = {"tier": "landlock", "source": "", "prelude": "", "tests": [test], "entry_point": None}
    job |= {"preset": "python", **LIMITS}
    reply = program_judge.ProgramJudge().judge(job)
    assert reply == {
        "outcomes": ["judge_error"],
        "messages": ["the sandbox died 3 times: no memory"],
    }


def worker_pids() -> list[int]:
    return pool.shared_pool(1, program_judge.__name__).worker_pids()


@one_tier_is_slow
def test_close_pool_leaves_no_process_and_no_folder(tier):
    before = folders()
    run_many(half_right(4), workers=2)
    family = [pid for worker in worker_pids() for pid in [worker, *descendants(worker)]]
    assert len(family) >= 3 * len(worker_pids()) > 0
    pool.close_pool()
    assert wait_until(lambda: not any(map(is_running, family)))
    assert wait_until(lambda: folders() <= before)


SCRIPT = """
import signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from klearlib.records import TestCase
from klearlib.verify import pool, program_judge
from klearlib.verify.programs import run_tests
tests = [TestCase("", stdin="")]
settings = dict(timeout_s=600.0, memory_mb=64)
run_tests("open('left', 'w')", tests, **settings)
threading.Thread(
    target=run_tests, args=("open('left', 'w'); import time; time.sleep(600)", tests),
    kwargs=settings, daemon=True,
).start()
time.sleep(0.5)
print(pool.shared_pool(1, program_judge.__name__).worker_pids()[0], flush=True)
"""


@pytest.mark.parametrize(
    "way", ["kill", *(pytest.param(w, marks=pytest.mark.slow) for w in ("exit", "interrupt"))]
)
def test_nothing_outlives_the_parent(tier, way):
    before = folders()
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT + ("" if way == "exit" else "time.sleep(600)")],
        env={**os.environ, "PYTHONPATH": str(ROOT), sandbox.FORCE: tier},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        worker = int(parent.stdout.readline())
        if way != "exit":
            # Worker, keeper, fork server, the program's process and its child; on a busy machine
            # the last comes late.
            wait_until(lambda: len(descendants(worker)) == 4)
        family = [worker, *descendants(worker)]
        if way != "exit":
            parent.send_signal(signal.SIGKILL if way == "kill" else signal.SIGINT)
        parent.wait(timeout=10)
    assert way == "exit" or len(family) == 5
    assert wait_until(lambda: not any(map(is_running, family)))
    assert wait_until(lambda: folders() <= before)
