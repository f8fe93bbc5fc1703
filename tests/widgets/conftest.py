"""One Jupyter server for all tests of a worker in a real front end: its start takes long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import frontends, host, lab


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    """The folder that a server with JupyterLab and Notebook serves, its address and its token."""
    pytest.importorskip("playwright.sync_api")
    folder = tmp_path_factory.mktemp("site")
    with lab.server(folder) as (base, token):
        yield folder, base, token


@pytest.fixture(scope="module")
def site(server: tuple[Path, str, str]) -> Iterator[frontends.Site]:
    """Pages of that server; the tests of a module share what the browser keeps of it."""
    with host.chromium() as browser, frontends.site(browser, *server) as running:
        yield running
