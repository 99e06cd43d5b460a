"""The plugin for pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import pytest

if TYPE_CHECKING:
    from redbolt.testing import Nodes


@pytest.fixture
def redbolt_nodes() -> Iterator[Nodes]:
    """Five nodes of `redbolt.testing`, for one test: `redbolt.Client(redbolt_nodes.urls)`."""
    # Tests that ask for no nodes do not load the library.
    from redbolt.testing import nodes

    with nodes(5) as started:
        yield started
