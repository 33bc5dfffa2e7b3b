"""JupyterHub with KubeSpawner as B5 runs it: its own database in PostgreSQL, and nothing that is not the subject.

Two things are replaced. The proxy does nothing, since routes are not what is measured. Whether the server in the pod
answers over HTTP is not asked, since the pods of simulated nodes have no program.
"""

import os

from jupyterhub.objects import Server
from jupyterhub.proxy import Proxy

c = get_config()  # noqa: F821 - JupyterHub gives it


class NoProxy(Proxy):
    """Takes every route and forgets it."""

    should_start = False

    async def add_route(self, routespec, target, data):
        """Nothing to do."""

    async def delete_route(self, routespec):
        """Nothing to do."""

    async def get_all_routes(self):
        """None."""
        return {}


class Answer:
    """What a single-user server's answer is asked for."""

    headers = {}  # noqa: RUF012 - read only


async def answers(self, *args, **kwargs):
    """In place of ``Server.wait_up``."""
    return Answer()


Server.wait_up = answers

c.JupyterHub.ip = "127.0.0.1"
c.JupyterHub.port = int(os.environ["BENCH_PORT"])
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.hub_port = int(os.environ["BENCH_PORT"]) + 1
c.JupyterHub.db_url = os.environ["BENCH_DATABASE"]
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.active_server_limit = 0
c.JupyterHub.last_activity_interval = 3600
c.JupyterHub.log_level = "WARN"
c.JupyterHub.services = [{"name": "bench", "api_token": os.environ["BENCH_TOKEN"]}]
c.JupyterHub.load_roles = [
    {"name": "bench", "services": ["bench"], "scopes": ["admin:users", "admin:servers", "list:users"]}
]
c.KubeSpawner.namespace = os.environ["BENCH_NAMESPACE"]
c.KubeSpawner.image = "mlportal/jupyter:1"
c.KubeSpawner.cpu_limit = 0.5
c.KubeSpawner.cpu_guarantee = 0.5
c.KubeSpawner.mem_limit = "1G"
c.KubeSpawner.mem_guarantee = "1G"
c.KubeSpawner.start_timeout = 300
c.KubeSpawner.delete_grace_period = 0
c.KubeSpawner.k8s_api_threadpool_workers = 64
