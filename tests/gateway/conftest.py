"""The world of instances, for tests that need rows."""

from tests.instances.conftest import world  # noqa: F401 - a fixture
