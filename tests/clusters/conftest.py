"""What the tests of clusters share."""

from tests.clusters.fixtures import fake_cluster  # noqa: F401
