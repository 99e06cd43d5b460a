"""The nodes for users' tests, and the fixture of the pytest plugin."""

from __future__ import annotations

import pytest

import redbolt
import redbolt.testing


def test_the_fixture_has_five_nodes_that_fail_when_they_are_told_to(redbolt_nodes: redbolt.testing.Nodes) -> None:
    assert len(redbolt_nodes) == len(redbolt_nodes.urls) == 5
    with redbolt.Client(redbolt_nodes.urls, node_timeout=0.5, max_ttl=10) as client:
        redbolt_nodes.pause(0)
        redbolt_nodes.kill(1)
        with client.lock("k", ttl=5):
            assert sum(redbolt_nodes.key_count(node) for node in (2, 3, 4)) == 3
        redbolt_nodes.kill(2)
        with pytest.raises(redbolt.NoQuorum):
            for _ in range(3):
                client.lock("k", ttl=5, timeout=0.5).unlock()
        redbolt_nodes.restart(2, keeps_memory=True)
        redbolt_nodes.resume(0)
        with client.lock("k", ttl=5, timeout=20):
            pass


def test_a_node_that_restarted_empty_does_not_vote_and_says_so(redbolt_nodes: redbolt.testing.Nodes) -> None:
    with redbolt.Client(redbolt_nodes.urls, node_timeout=0.5, max_ttl=3) as client:
        client.ready()
        for node in range(3):
            redbolt_nodes.restart(node)
        with pytest.raises(redbolt.NoQuorum) as none:
            client.lock("k", ttl=1, timeout=0.5).unlock()
        assert "quarantined" in {answer for _, answer in none.value.votes}
        client.ready(timeout=30)
        client.lock("k", ttl=1).unlock()


def test_nodes_end_with_their_block() -> None:
    with redbolt.testing.nodes(3) as nodes:
        urls = nodes.urls
    for ask in (lambda: nodes.urls, lambda: nodes.kill(0), lambda: len(nodes)):
        with pytest.raises(RuntimeError):
            ask()
    with redbolt.Client(urls, connect_timeout=0.2) as client, pytest.raises(redbolt.NoQuorum):
        client.lock("k", ttl=5, timeout=0.3)
    with redbolt.testing.nodes(1) as one, pytest.raises(RuntimeError, match="node"):
        one.kill(7)


def test_the_fixture_comes_by_the_installed_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import redbolt

        def test_mine(redbolt_nodes):
            with redbolt.Client(redbolt_nodes.urls) as client, client.lock("k", ttl=5) as lease:
                assert not lease.lost
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


pytest_plugins = ["pytester"]
