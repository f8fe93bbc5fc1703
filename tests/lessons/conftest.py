"""Widgets are needed for all of this folder."""

from __future__ import annotations

import pytest

pytest.importorskip("anywidget")
