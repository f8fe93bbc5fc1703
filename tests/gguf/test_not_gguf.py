"""Paths that are not GGUF files at all: the error says what they look like and what to do."""

from __future__ import annotations

import os

import pytest
from gguf_bytes import tiny

from llmviz.errors import GGUFError
from llmviz.gguf import open_gguf

FILES = {
    "empty": (b"", "the file is empty"),
    "three_bytes": (b"GGU", "only 3 bytes"),
    "html": (b"<!doctype html><html>sign in", "'<!do'.*web page"),
    "html_upper": (b"\n  <!DOCTYPE HTML>", "web page"),
    "html_bare": (b"<html lang=en>", "web page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "'vers'.*git lfs pull"),
    "zip": (b"PK\x03\x04" + bytes(40), r"'PK\?\?'.*PyTorch"),
    "pickle": (b"\x80\x02\x8a\nl\xfc", "pickle"),
    "ggjt": (b"tjgg\x03\0\0\0" + bytes(40), "'tjgg'.*ggjt file.*before GGUF"),
    "ggml": (b"lmgg" + bytes(40), "ggml file"),
    "reversed": (b"FUGG" + bytes(40), "'FUGG'.*reversed"),
    "gzip": (b"\x1f\x8b\x08" + bytes(40), "gzip"),
    "safetensors": (b"\x40\0\0\0\0\0\0\0" + b'{"a":{"dtype":"F32"}}', "safetensors"),
    "json": (b'{"error":"Repository not found"}', "JSON"),
    "site_message": (b"Entry not found", "download site"),
    "zeros": (bytes(4096), r"'\?\?\?\?'.*unfinished download"),
    "other": (b"\x7fELF" + bytes(40), r"'\?ELF'.*not a GGUF file"),
}


@pytest.mark.parametrize("use_mmap", [True, False], ids=["mmap", "read"])
@pytest.mark.parametrize("case", FILES)
def test_wrong_files(tmp_path, case, use_mmap):
    data, message = FILES[case]
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(GGUFError, match=f"(?s){message}") as caught:
        open_gguf(path, use_mmap=use_mmap)
    assert (caught.value.offset, caught.value.field) == (0, "magic")
    assert caught.value.path == str(path)


def test_missing_file(tmp_path):
    with pytest.raises(GGUFError, match="no such file") as caught:
        open_gguf(tmp_path / "nothing.gguf")
    assert caught.value.path == str(tmp_path / "nothing.gguf")


def test_directory(tmp_path):
    with pytest.raises(GGUFError, match=r"directory, and no \.gguf file lies in it"):
        open_gguf(tmp_path)
    for name in "dcba":
        (tmp_path / f"{name}.gguf").write_bytes(tiny())
    with pytest.raises(
        GGUFError, match=r"give a file in it: a.gguf, b.gguf, c.gguf \(and 1 more\)"
    ):
        open_gguf(tmp_path)


def test_path_through_a_file(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    with pytest.raises(GGUFError, match="cannot be opened"):
        open_gguf(tmp_path / "x" / "y.gguf")


def test_nul_in_the_path():
    with pytest.raises(GGUFError, match="cannot be opened"):
        open_gguf("a\0b.gguf")


def test_empty_path():
    with pytest.raises(GGUFError, match="no such file"):
        open_gguf("")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(GGUFError, match="not a regular file"):
        open_gguf(tmp_path / "pipe.gguf")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file"
)
def test_unreadable_file(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(tiny())
    path.chmod(0)
    with pytest.raises(GGUFError, match="Permission denied"):
        open_gguf(path)
