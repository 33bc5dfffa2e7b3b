"""Fixtures of this app's tests."""

from tests.clusters.fixtures import fake_cluster  # noqa: F401
