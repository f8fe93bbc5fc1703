"""llmviz.hub: every source, every failure, without any network but the loopback."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from llmviz import hub
from llmviz.errors import HubError, LoadCancelled
from llmviz.hub import huggingface, pypi
from llmviz.hub.known import HubFile, KnownModel, Wheel

CONTENT = b"GGUF" + bytes(range(256)) * 800
SHA256 = hashlib.sha256(CONTENT).hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("LLMVIZ_CACHE", str(folder))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return folder


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that refuses connections at once."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index that pip sees instead of PyPI: a folder with the two wheels of `known`."""
    folder = tmp_path / "index"
    folder.mkdir()
    half = len(CONTENT) // 2
    write_wheel(folder, "piece_one", {"piece_one/model.part0": CONTENT[:half]})
    write_wheel(folder, "piece_two", {"piece_two/model.part1": CONTENT[half:]})
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> KnownModel:
    model = KnownModel(
        name="toy",
        title="A toy",
        arch="llama",
        licence="MIT",
        filename="toy.gguf",
        nbytes=len(CONTENT),
        sha256=SHA256,
        hub=HubFile("someone/toy-GGUF", "toy.gguf"),
        wheels=(
            Wheel("piece-one==1.0", "piece_one/model.part0", 1000),
            Wheel("piece-two==1.0", "piece_two/model.part1", 1000),
        ),
    )
    monkeypatch.setitem(hub.KNOWN, "toy", model)
    return model


def write_wheel(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in files.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


class FakeHub(ThreadingHTTPServer):
    """Answers like the hub for the files it is given, and counts requests."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files = files
        self.etags: dict[str, str] = {}
        self.truncate = 0
        self.requests: list[str] = []


class _Answer(BaseHTTPRequestHandler):
    server: FakeHub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        repo, _, rest = self.path.lstrip("/").partition("/resolve/")
        _, _, path = rest.partition("/")
        data = self.server.files.get(f"{repo}/{path}")
        if data is None:
            known_repo = any(name.startswith(f"{repo}/") for name in self.server.files)
            code = "EntryNotFound" if known_repo else "RepoNotFound"
            self.send_response(404)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        etag = self.server.etags.get(path) or hashlib.sha256(data).hexdigest()
        start = 0
        if self.headers.get("Range"):
            start = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if body:
            end = len(data) - self.server.truncate
            self.wfile.write(data[start:end])
            if self.server.truncate:
                self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    server = FakeHub({"someone/toy-GGUF/toy.gguf": CONTENT})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


# -- references -----------------------------------------------------------------------------------


def test_a_path_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(CONTENT)
    assert hub.resolve(path) == path
    assert hub.resolve(str(path)) == path
    assert hub.resolve(tmp_path) == tmp_path  # a directory: the reader says what is wrong with it


def test_an_unknown_reference_lists_what_there_is() -> None:
    with pytest.raises(HubError, match=r"no such file: 'smolm2'.*smollm2-135m.*hf:owner"):
        hub.resolve("smolm2")


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("hf:a/b/c.gguf", HubFile("a/b", "c.gguf")),
        ("hf:a/b/sub/c.gguf", HubFile("a/b", "sub/c.gguf")),
        ("hf:a/b/c.gguf@main", HubFile("a/b", "c.gguf", "main")),
        ("hf:a/b/c.gguf@refs/pr/1", HubFile("a/b", "c.gguf", "refs/pr/1")),
    ],
)
def test_hub_references(text: str, file: HubFile) -> None:
    assert HubFile.parse(text) == file
    assert str(file) == text


@pytest.mark.parametrize("text", ["hf:", "hf:a", "hf:a/b", "hf:a//c.gguf", "hf:a/b/../c.gguf"])
def test_bad_hub_references(text: str) -> None:
    with pytest.raises(HubError, match="hf:owner/repository/file"):
        hub.resolve(text)


def test_parts_of_a_split_model() -> None:
    parts = HubFile("a/b", "m-00001-of-00003.gguf").parts()
    assert [p.path for p in parts] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert HubFile("a/b", "m.gguf").parts() == [HubFile("a/b", "m.gguf")]


def test_cache_dir(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub.cache_dir() == cache
    monkeypatch.delenv("LLMVIZ_CACHE")
    assert hub.cache_dir().name == "llmviz"


def test_known_models_are_complete() -> None:
    for model in hub.list_models():
        assert hub.KNOWN[model.name] is model
        assert model.filename.endswith(".gguf")
        assert len(model.sha256) == 64
        if model.shipped:
            assert model.path == model.target and not model.wheels
            continue
        assert model.path is None  # the cache of this test is empty
        assert all("==" in wheel.requirement for wheel in model.wheels)
    assert "ai.google.dev/gemma/terms" in hub.KNOWN["gemma3-270m"].notice


# -- the hub --------------------------------------------------------------------------------------


def test_hub_download_then_no_network(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    path = hub.resolve("hf:someone/toy-GGUF/toy.gguf", progress=seen.append)
    assert path.read_bytes() == CONTENT
    assert seen[-1] == pytest.approx(1.0)
    assert hub.cache_dir() in path.parents

    count = len(fake_hub.requests)
    monkeypatch.setattr(huggingface, "_unreachable", lambda endpoint: pytest.fail("asked"))
    assert hub.resolve("hf:someone/toy-GGUF/toy.gguf") == path
    assert len(fake_hub.requests) == count


def test_hub_split_model(fake_hub: FakeHub) -> None:
    for no in (1, 2):
        fake_hub.files[f"someone/toy-GGUF/m-0000{no}-of-00002.gguf"] = CONTENT + bytes([no])
    first = hub.resolve("hf:someone/toy-GGUF/m-00001-of-00002.gguf")
    assert first.read_bytes() == CONTENT + b"\x01"
    assert (first.parent / "m-00002-of-00002.gguf").read_bytes() == CONTENT + b"\x02"


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("hf:someone/toy-GGUF/other.gguf", "no such file"),
        ("hf:someone/else/toy.gguf", "no such repository, or it is private"),
    ],
)
def test_hub_says_what_is_missing(fake_hub: FakeHub, ref: str, message: str) -> None:
    with pytest.raises(HubError, match=message):
        hub.resolve(ref)


def test_hub_wrong_checksum(fake_hub: FakeHub) -> None:
    fake_hub.etags["toy.gguf"] = "0" * 64
    with pytest.raises(HubError, match=r"wrong checksum and was thrown away: sha256 is"):
        hub.resolve("hf:someone/toy-GGUF/toy.gguf")
    assert huggingface.cached(HubFile("someone/toy-GGUF", "toy.gguf")) is None


def test_hub_half_download(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # huggingface_hub waits before retries
    fake_hub.truncate = 1000
    with pytest.raises(HubError, match="Try again"):
        hub.resolve("hf:someone/toy-GGUF/toy.gguf")
    fake_hub.truncate = 0
    assert hub.resolve("hf:someone/toy-GGUF/toy.gguf").read_bytes() == CONTENT


def test_hub_cancel(fake_hub: FakeHub) -> None:
    with pytest.raises(LoadCancelled):
        hub.resolve("hf:someone/toy-GGUF/toy.gguf", progress=lambda fraction: False)


def test_hub_unreachable(no_hub: None) -> None:
    start = time.monotonic()
    with pytest.raises(HubError, match=r"cannot be reached \(.*refused.*Connect to the internet"):
        hub.resolve("hf:someone/toy-GGUF/toy.gguf")
    assert time.monotonic() - start < 5


def test_hub_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)  # listens, but nobody serves
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.server_port}")
    monkeypatch.setattr(huggingface, "PROBE_SECONDS", 0.2)
    with pytest.raises(HubError, match="cannot be reached"):
        hub.resolve("hf:someone/toy-GGUF/toy.gguf")
    silent.server_close()


def test_hub_offline_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        hub.resolve("hf:someone/toy-GGUF/toy.gguf")


# -- known models ---------------------------------------------------------------------------------


def test_known_from_the_hub(fake_hub: FakeHub, known: KnownModel) -> None:
    path = hub.resolve("toy")
    assert path == known.target == known.path
    assert path.read_bytes() == CONTENT
    assert not (hub.cache_dir() / "downloads" / "toy").exists()


def test_known_falls_back_to_wheels(
    no_hub: None, wheels: Path, known: KnownModel, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[float] = []
    path = hub.resolve("TOY", progress=seen.append)
    assert path.read_bytes() == CONTENT
    assert seen == sorted(seen) and seen[-1] == 1.0
    assert "cannot be reached" in capsys.readouterr().err
    assert [p.name for p in path.parent.iterdir()] == ["toy.gguf"]  # nothing left behind

    shutil.rmtree(wheels)  # and now from the cache alone, at once
    start = time.monotonic()
    assert hub.resolve("toy") == path
    assert time.monotonic() - start < 0.1


def test_a_changed_file_on_the_hub_is_refused_and_the_wheels_serve(
    fake_hub: FakeHub, wheels: Path, known: KnownModel
) -> None:
    fake_hub.files["someone/toy-GGUF/toy.gguf"] = CONTENT[::-1]
    assert hub.resolve("toy").read_bytes() == CONTENT


def test_offline_and_nothing_cached(no_hub: None, known: KnownModel, wheels: Path) -> None:
    for wheel in wheels.iterdir():
        wheel.unlink()
    with pytest.raises(HubError) as caught:
        hub.resolve("toy")
    message = str(caught.value)
    for part in ("cannot be reached", "piece-one==1.0", "llmviz models fetch toy", "toy.gguf"):
        assert part in message
    assert known.path is None


def test_pip_without_a_network_fails_soon(
    no_hub: None, known: KnownModel, monkeypatch: pytest.MonkeyPatch, wheels: Path
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    start = time.monotonic()
    with pytest.raises(HubError, match=r"pip download piece-one==1\.0 failed"):
        hub.resolve("toy")
    assert time.monotonic() - start < 30


def test_wheel_with_the_wrong_content(no_hub: None, known: KnownModel, wheels: Path) -> None:
    write_wheel(wheels, "piece_two", {"piece_two/model.part1": b"else"})
    with pytest.raises(HubError, match="wrong checksum"):
        hub.resolve("toy")
    assert known.path is None
    assert list(known.target.parent.iterdir()) == []


def test_wheel_without_the_file(no_hub: None, known: KnownModel, wheels: Path) -> None:
    write_wheel(wheels, "piece_two", {})
    with pytest.raises(HubError, match=r"piece-two==1.0 holds no piece_two/model\.part1"):
        hub.resolve("toy")


def test_half_a_wheel(no_hub: None, known: KnownModel, wheels: Path) -> None:
    path = wheels / "piece_one-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(HubError, match=r"piece-one==1\.0"):
        hub.resolve("toy")
    assert list(known.target.parent.iterdir()) == []


def test_cancel_while_pip_downloads(no_hub: None, known: KnownModel, wheels: Path) -> None:
    with pytest.raises(LoadCancelled):
        hub.resolve("toy", progress=lambda fraction: False)
    assert list(known.target.parent.iterdir()) == []


def test_no_pip(no_hub: None, known: KnownModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pypi.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(HubError, match="has no pip"):
        hub.resolve("toy")


def test_too_little_disk_space(
    no_hub: None, known: KnownModel, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(pypi.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(HubError, match=r"the disk is full.*LLMVIZ_CACHE"):
        hub.resolve("toy")


def test_disk_fills_while_writing(
    no_hub: None, known: KnownModel, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pypi.shutil, "copyfileobj", full)
    with pytest.raises(HubError, match="the disk is full"):
        hub.resolve("toy")
    assert list(known.target.parent.iterdir()) == []


def test_cache_that_cannot_be_written(
    tmp_path: Path, known: KnownModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("LLMVIZ_CACHE", str(blocker))
    with pytest.raises(HubError, match="LLMVIZ_CACHE"):
        hub.resolve("toy")


def test_a_truncated_cached_file_is_fetched_again(
    no_hub: None, known: KnownModel, wheels: Path
) -> None:
    path = hub.resolve("toy")
    path.write_bytes(CONTENT[:-1])
    assert known.path is None
    assert hub.resolve("toy").read_bytes() == CONTENT


def test_terms_are_shown_before_the_fetch(
    no_hub: None,
    known: KnownModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gemma = hub.KNOWN["gemma3-270m"]

    def fetch(model: KnownModel, progress: object) -> Path:
        assert "Gemma Terms of Use" in capsys.readouterr().err
        return Path("here")

    monkeypatch.setattr(pypi, "fetch", fetch)
    assert hub.resolve(gemma.name) == Path("here")
