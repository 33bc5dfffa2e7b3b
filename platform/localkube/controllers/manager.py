"""All controllers of the cluster, started and stopped together."""

from __future__ import annotations

from localkube.config import Config
from localkube.controllers.base import Controller
from localkube.controllers.endpoints import EndpointsController
from localkube.controllers.expiry import EventExpiry
from localkube.controllers.garbage import GarbageCollector
from localkube.controllers.jobs import JobController
from localkube.controllers.namespaces import NamespaceController
from localkube.controllers.nodes import NodeController
from localkube.controllers.scheduler import Scheduler
from localkube.controllers.statefulsets import StatefulSetController
from localkube.controllers.volumes import VolumeController
from localkube.registry import Registry


class Controllers:
    """Starts and stops every control loop."""

    def __init__(self, registry: Registry, config: Config) -> None:
        self._all: tuple[Controller, ...] = tuple(kind(registry, config) for kind in _KINDS)
        self._registry = registry

    def start(self) -> None:
        self._registry.admission.ledger.publish_all()
        for controller in self._all:
            controller.start()

    def stop(self) -> None:
        for controller in self._all:
            controller.stop()


_KINDS: tuple[type[Controller], ...] = (
    NamespaceController,
    GarbageCollector,
    NodeController,
    VolumeController,
    Scheduler,
    StatefulSetController,
    JobController,
    EndpointsController,
    EventExpiry,
)
