"""The plugin for pytest."""

from __future__ import annotations

from typing import Iterator

import pytest

from redbolt.testing import Nodes, nodes


@pytest.fixture
def redbolt_nodes() -> Iterator[Nodes]:
    """Five nodes of `redbolt.testing`, for one test: `redbolt.Client(redbolt_nodes.urls)`."""
    with nodes(5) as started:
        yield started
