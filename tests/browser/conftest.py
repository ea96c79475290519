"""A JupyterLab on a copy of the repository, as `make lab` starts it, and a browser's page."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from browsing import Lab, git, wait_for

REPOSITORY = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
START_S = 60


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """The files that git would have of this working tree, committed in a repository of their own;
    no results."""
    clone = tmp_path_factory.mktemp("klear")
    listed = git(REPOSITORY, "ls-files", "-z", "-co", "--exclude-standard", ":!results")
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, clone / name)
    git(clone, "init", "-q")
    git(clone, "add", ".")
    git(clone, "-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "first")
    return clone


@pytest.fixture(scope="module")
def lab(clone, tmp_path_factory):
    """A running JupyterLab; `marked()` are the processes that come from it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The environment of these tests, as it is: its marker may be older than the copied lock.
    ready = str(Path(sys.prefix) / ".klear-ready")
    options = f"--no-browser --allow-root --port={port} --IdentityProvider.token="
    mark = f"KLEAR_BROWSER_TEST={uuid.uuid4()}"
    environment = {**os.environ, "PYTHONPATH": str(clone), **dict([mark.split("=")])}
    environment["JUPYTER_CONFIG_DIR"] = str(_settings(tmp_path_factory.mktemp("settings")))
    environment.pop("KLEAR_ROOT", None)
    log = open(tmp_path_factory.mktemp("log") / "lab.txt", "w+")  # noqa: SIM115 - closed below
    process = subprocess.Popen(
        ["make", "-o", ready, "lab", f"KLEAR_VENV={sys.prefix}", f"ARGS={options}"],
        cwd=clone,
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    running = Lab(f"http://127.0.0.1:{port}", clone, mark)
    try:
        wait_for(running.answers, START_S, what="JupyterLab")
        yield running
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        wait_for(lambda: not running.marked(), 10, what="the end of all processes")
    finally:
        for pid in running.marked():
            os.kill(pid, signal.SIGKILL)
        process.wait()
        log.seek(0)
        print(log.read()[-4000:])
        log.close()


def _settings(folder: Path) -> Path:
    """Nothing of the user's, no question about news, and every cell in the page all the time."""
    settings = {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        "notebook-extension/tracker": {"windowingMode": "none"},
    }
    for name, values in settings.items():
        path = folder / f"lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="module")
def page(lab):
    """An empty page of a headless Chromium that is on this machine."""
    from playwright.sync_api import sync_playwright

    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(30_000)
        yield page
        browser.close()
