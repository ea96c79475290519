"""Files are whole or absent, whoever writes them."""

import errno
import os
import threading

import pytest

from klearlib.errors import KlearError
from klearlib.run.files import read_json, write_bytes, write_json, write_text


def test_json_comes_back_and_what_is_none_is_a_value_error(tmp_path):
    write_json(tmp_path / "x.json", {"é": [1.5, None]})
    assert read_json(tmp_path / "x.json") == {"é": [1.5, None]}
    for content in (b"{", b"\xff"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(ValueError):
            read_json(tmp_path / "x.json")


def test_content_and_folder(tmp_path):
    path = tmp_path / "a" / "b" / "x.bin"
    with pytest.raises(KlearError, match="cannot write"):
        write_bytes(path, b"1")
    assert list(tmp_path.iterdir()) == []
    assert write_bytes(path, b"\x00\xff", make_folder=True) == path
    assert path.read_bytes() == b"\x00\xff"
    write_text(path, "é\n", durable=False)
    assert path.read_bytes() == b"\xc3\xa9\n"
    write_json(path, {"b": 1, "a": 2})
    assert path.read_text() == '{\n "a": 2,\n "b": 1\n}\n'
    assert [file.name for file in path.parent.iterdir()] == ["x.bin"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch, broken):
    path = tmp_path / "x.json"
    path.write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(KlearError) as caught:
        write_bytes(path, b"new")
    assert str(caught.value).startswith(f"no space left for {path}: free some disk space")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_interrupt_leaves_no_half_file(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "x", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_file_keeps_its_permissions(tmp_path):
    path = write_text(tmp_path / "a", "1")
    path.chmod(0o600)
    write_text(path, "2")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    for make_folder in (False, True):
        with pytest.raises(KlearError, match=r"^cannot write .*file") as caught:
            write_bytes(tmp_path / "file" / "x", b"1", make_folder=make_folder)
        assert "\n" not in str(caught.value)


def test_threads_that_write_one_file(tmp_path):
    path, contents = tmp_path / "x", [bytes([65 + i]) * 200_000 for i in range(4)]
    faults = []

    def write(content):
        try:
            for _ in range(20):
                write_bytes(path, content, durable=False)
                assert path.read_bytes() in contents
        except (AssertionError, KlearError) as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(KlearError, match=r"cannot write .*there"):
        write_bytes(tmp_path / "there", b"text")
    assert (tmp_path / "there").is_dir()
    with pytest.raises(KlearError, match=r"cannot write .*nowhere/there \(No such file"):
        write_bytes(tmp_path / "nowhere" / "there", b"text")
