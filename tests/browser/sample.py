"""Fills a portal with rows in every state, with long and Chinese names, for looking at its pages."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any
from uuid import uuid4

import django

django.setup()

from django.contrib.auth import get_user_model  # noqa: E402 - apps are loaded by the line above
from django.utils import timezone  # noqa: E402

from apps.catalog.models import Image, Purpose, Size  # noqa: E402
from apps.clusters.models import Cluster, ClusterCheck, Node  # noqa: E402
from apps.core import actors, audit  # noqa: E402
from apps.flows import services  # noqa: E402
from apps.flows.models import Attempt, Flow, LogChunk, Run  # noqa: E402
from apps.instances.lifetime.rows import Lifetime  # noqa: E402
from apps.instances.models import Instance, OpenPort, PortGuest  # noqa: E402
from apps.storage.models import Volume, VolumeKind  # noqa: E402
from apps.tenants.models import LifetimeRule, Membership, Queue, Reservation, Role, Team  # noqa: E402
from tests.browser.sample_events import attempt_events, instance_events, volume_events  # noqa: E402
from tests.browser.web import PASSWORD  # noqa: E402

NOW = timezone.now()
GIB = 2**30
SYSTEMS = ("reconciler", "scheduler", "watcher", "bootstrap", "cluster check")
LONG_PERSON = "maximiliane.von-der-langen-strasse@research.example.com"
LONG = "a-name-of-sixty-three-characters-which-is-the-most-that-fits-in"
FORBIDDEN = 'networkpolicies.networking.k8s.io is forbidden: User "mlportal" cannot patch resource "networkpolicies"'
CHECKED: list[tuple[str, str, str, dict[str, Any], str, list[str]]] = [
    ("version", "version_good", "good", {"version": "v1.36.1"}, "", []),
    (
        "permission",
        "permission_missing",
        "missing",
        {"verbs": "create, delete", "what": "networkpolicies.networking.k8s.io", "missing": "create, delete"},
        "kubectl create clusterrole mlportal-policies --verb=create,delete --resource=networkpolicies",
        [FORBIDDEN],
    ),
    ("storage_class", "storage_class_none", "missing", {}, "", []),
    ("metrics", "metrics_good", "good", {"count": 2, "nodes": 3}, "", []),
    ("network", "network_no_pods", "unknown", {}, "", ["pods did not run within 60 s", "0/3 nodes are available"]),
]
EVIDENCE = [
    "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.",
    "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.",
]


def ago(**amount: float) -> Any:
    """An instant before now."""
    return NOW - timedelta(**amount)


def people() -> dict[str, Any]:
    """An administrator, a member, a viewer, and somebody who has nothing yet."""
    users = get_user_model().objects
    admin = users.filter(username="admin").first() or users.create_user("admin", is_platform_admin=True)
    admin.set_password(PASSWORD)
    admin.must_change_password = False
    admin.save()
    made = {name: users.create_user(name, password=PASSWORD) for name in ("wei", "anna", "newcomer")}
    users.create_user(LONG_PERSON, password=PASSWORD, is_active=False)
    return {"admin": admin, **made}


def main() -> None:
    """Write everything."""
    who = people()
    cluster = Cluster.objects.as_system().filter(name="local").first() or Cluster.objects.create(
        name="local",
        server="https://127.0.0.1:6443",
        credentials='{"server": "https://127.0.0.1:9", "token": "x"}',
        apps_domain="apps.localhost",
        state="connected",
        embedded=True,
        version="v1.36.1",
        last_contact_at=NOW,
    )
    Cluster.objects.create(
        name="gpu-east",
        server="https://gpu-east.example:6443",
        credentials='{"server": "https://127.0.0.1:9", "token": "x"}',
        apps_domain="apps.example",
        state="unreachable",
        state_since=ago(minutes=12),
        version="v1.34.2",
        last_contact_at=ago(minutes=12),
        reason_code="cluster_unreachable",
        reason_params={"cluster": "gpu-east", "detail": "connection refused"},
        reason_evidence=["HTTPSConnectionPool(host='gpu-east.example', port=6443): connection refused"],
    )
    ClusterCheck.objects.create(
        cluster=cluster,
        state="succeeded",
        state_since=ago(minutes=3),
        started_at=ago(minutes=4),
        finished_at=ago(minutes=3),
        lines=[
            {"topic": topic, "code": code, "result": result, "params": params, "command": command, "evidence": evidence}
            for topic, code, result, params, command, evidence in CHECKED
        ],
    )
    Node.objects.as_system().filter(cluster=cluster).delete()
    for number in range(3):
        Node.objects.create(
            cluster=cluster,
            name=f"node-{number}.example.internal",
            ready=number != 2,
            schedulable=number != 1,
            allocatable={"cpu_millis": 16000, "memory_bytes": 64 * GIB, "pods": 110, "nvidia.com/gpu": 4},
            requested={
                "cpu_millis": 5000 * number,
                "memory_bytes": 20 * GIB * number,
                "pods": 12,
                "nvidia.com/gpu": number,
            },
            seen_at=ago(seconds=20),
        )
    team = Team.objects.create(name="vision", description="图像识别与自动标注 – everything that looks at pictures")
    other = Team.objects.create(name=LONG)
    Membership.objects.create(team=team, user=who["wei"], role=Role.ADMIN)
    Membership.objects.create(team=team, user=who["anna"], role=Role.VIEWER)
    Membership.objects.create(team=other, user=who["wei"], role=Role.MEMBER)
    Membership.objects.create(team=other, user=who["newcomer"], role=Role.MEMBER)
    Membership.objects.create(team=team, user=get_user_model().objects.get(username=LONG_PERSON), role=Role.MEMBER)
    queues = [
        Queue.objects.create(
            name=name,
            team=owner,
            cluster=cluster,
            namespace=f"mlp-{number}",
            cpu_millis=8000,
            memory_bytes=32 * GIB,
            gpus={"nvidia.com/gpu": 4} if number == 0 else {},
            storage_bytes=500 * GIB,
            state=state,
            state_since=ago(days=3),
            reason_code="queue_refused" if state == "failed" else "",
            reason_params={"cluster": "local", "part": "NetworkPolicy default-deny"} if state == "failed" else {},
            reason_evidence=[FORBIDDEN] if state == "failed" else [],
        )
        for number, (name, owner, state) in enumerate(
            [("vision", team, "ready"), (LONG, other, "ready"), ("broken", team, "failed"), ("new", team, "creating")]
        )
    ]
    queue = queues[0]
    jupyter = Image.objects.as_system().filter(purpose=Purpose.DEV).first() or Image.objects.create(
        name="jupyter", reference="mlportal/jupyter:1", purpose=Purpose.DEV, description="JupyterLab"
    )
    if not Image.objects.as_system().filter(purpose=Purpose.TASK).exists():
        Image.objects.create(name="python", reference="mlportal/python:1", purpose=Purpose.TASK, description="Python")
    Image.objects.create(
        name="old-torch",
        reference="registry.example:5000/very/deep/path/to/an/image/of/pytorch:2.1-cuda12.1-cudnn8",
        purpose=Purpose.DEV,
        version="2.1",
        cuda="12.1",
        retired=True,
        replaced_by=jupyter,
    )
    Image.objects.create(
        name="torch",
        reference=f"registry.example:5000/ml/torch:2.5@sha256:{'3f' * 32}",
        purpose=Purpose.DEV,
        description="PyTorch for the team vision",
        version="2.5",
        cuda="12.4",
        architecture="amd64",
        hidden=True,
    )
    Team.objects.as_system().filter(pk=team.pk).update(own_images=True, image_prefixes=["docker.io/library"])
    debian = Image.objects.create(
        name="debian", reference="docker.io/library/debian:bookworm", purpose=Purpose.DEV, prepared=False, team=team
    )
    sizes = list(Size.objects.as_system().order_by("position")) or [
        Size.objects.create(name=name, cpu_millis=cpu, memory_bytes=memory * GIB, gpus=gpus)
        for name, cpu, memory, gpus in [("small", 500, 1, 0), ("medium", 1000, 2, 0), ("gpu-1", 4000, 16, 1)]
    ]
    volumes = volumes_of(who, queue)
    instances_of(who, queue, jupyter, sizes, volumes[0])
    plain = Instance.objects.as_system().get(name="train-bert")
    plain.pk, plain.name, plain.image, plain.entrances = uuid4(), "plain-debian", debian, {"why": "no-python"}
    plain.save(force_insert=True)
    open_ports(who["admin"], who["wei"])
    flows_of(who, queue)
    for kind, cpu, memory, gpus, storage in [
        ("instance", 3000, 20, {"nvidia.com/gpu": 4}, 0),
        ("attempt", 4200, 9, {}, 0),
        ("volume", 0, 0, {}, 210),
    ]:
        Reservation.objects.create(
            queue=queue,
            kind=kind,
            object_id=queue.pk,
            cpu_millis=cpu,
            memory_bytes=memory * GIB,
            gpus=gpus,
            storage_bytes=storage * GIB,
        )
    for number in range(70):
        actor = actors.from_user(who["wei"]) if number % 3 else actors.system(SYSTEMS[number // 3 % len(SYSTEMS)])
        audit.record(
            actor=actor,
            verb=("queue.quota", "instance.start", "flow.run")[number % 3],
            obj=queue,
            detail={"from": "creating", "to": "ready"} if number % 3 == 1 else {"cpu_millis": 4000},
        )


def volumes_of(who: dict[str, Any], queue: Queue) -> list[Volume]:
    """A home and data volumes."""
    rows = [
        ("home-wei", VolumeKind.HOME, "bound", 20),
        ("imagenet", VolumeKind.DATA, "bound", 150),
        ("数据集-二〇二六", VolumeKind.DATA, "creating", 10),
        (LONG, VolumeKind.DATA, "failed", 30),
    ]
    return [
        Volume.objects.create(
            name=name,
            queue=queue,
            owner=who["wei"],
            kind=kind,
            size_bytes=size * GIB,
            claim=f"v-{number}",
            state=state,
            state_since=ago(hours=number),
            reason_code="volume_refused" if state == "failed" else "",
            reason_params={"cluster": "local"} if state == "failed" else {},
            reason_evidence=EVIDENCE if state == "failed" else [],
            last_events=volume_events(NOW) if number else [],
        )
        for number, (name, kind, state, size) in enumerate(rows)
    ]


def instances_of(who: dict[str, Any], queue: Queue, image: Image, sizes: list[Size], home: Volume) -> None:
    """Many that rest, then one in each state, so that those are the newest."""
    for number in range(60):
        Instance.objects.create(
            name=f"sweep-{number:02d}",
            owner=who["wei"] if number % 2 else who["admin"],
            queue=queue,
            image=image,
            size=sizes[number % len(sizes)],
            home=home,
            state="stopped",
            state_since=ago(days=number),
            desired="stopped",
            launch=1,
        )
    rows = [
        ("gone-soon", "deleting", "", {}),
        ("标注工具", "starting", "", {}),
        (LONG, "failed", "out_of_memory", {"memory": "1 GiB"}),
        ("waiting", "queued", "no_node_memory", {"memory": "16 GiB"}),
        ("lost", "unreachable", "node_lost", {"node": "node-2"}),
        ("old", "stopped", "stopped_idle", {"minutes": 240, "team": queue.team.name}),
        ("ending", "stopping", "", {}),
        ("train-bert", "running", "", {}),
    ]
    for number, (name, state, reason, params) in enumerate(rows):
        Instance.objects.create(
            name=name,
            owner=who["admin"] if state == "running" else who["wei"],
            queue=queue,
            image=image,
            size=sizes[number % len(sizes)],
            home=home,
            state=state,
            state_since=ago(minutes=7 * number + 1),
            reason_code=reason,
            reason_params=params,
            reason_evidence=EVIDENCE if reason else [],
            node="node-0.example.internal" if state == "running" else "",
            desired="stopped" if state in ("stopped", "stopping") else "running",
            launch=1,
            start_requested_at=ago(seconds=9),
            ready_at=ago(seconds=2) if state == "running" else None,
            stages=stages(state),
            last_events=[] if state == "stopped" else instance_events(NOW, about=f"i-{number}-0"),
        )
    set_up = {"env": {"WANDB_MODE": "offline", "RUN_NAME": "夜间训练"}, "script": "pip install -r /root/needed.txt\n"}
    waiting = {"size": str(sizes[0].pk), "options": {**set_up, "shm_bytes": 256 << 20, "time_zone": "Asia/Shanghai"}}
    newest = Instance.objects.as_system().filter(name="train-bert")
    newest.update(at_rest=False, options={**set_up, "time_zone": "Asia/Tokyo"}, pending=waiting)
    LifetimeRule.objects.create(team=queue.team, idle_minutes=240)
    life = {"launch": 1, "looked_at": ago(minutes=2), "idle_s": 13500, "ends_at": NOW + timedelta(hours=30)}
    warned = {"warned_for": "idle", "warned_at": ago(minutes=2), "stops_at": NOW + timedelta(minutes=13)}
    Lifetime.objects.create(instance=Instance.objects.as_system().get(name="train-bert"), **life, **warned)


def open_ports(owner: Any, guest: Any) -> None:
    """Two at each instance of the owner, one of them shared."""
    for mine in Instance.objects.as_system().filter(owner=owner):
        OpenPort.objects.create(instance=mine, number=6006, label="TensorBoard")
        port = OpenPort.objects.create(instance=mine, number=8501, label="标注结果演示")
        PortGuest.objects.create(port=port, person=guest, until=NOW + timedelta(days=3))


def stages(state: str) -> dict[str, str]:
    """How far a start has come."""
    reached = {"running": 5, "unreachable": 5, "failed": 4, "starting": 2}.get(state, 0)
    names = ("scheduled", "volume", "image", "started", "ready")
    return {name: ago(seconds=9 - 1.5 * number).isoformat() for number, name in enumerate(names[:reached])}


def flows_of(who: dict[str, Any], queue: Queue) -> None:
    """A flow with runs in every state, one that is paused, one that never ran."""
    actor = actors.from_user(who["wei"])
    node = {
        "name": "main",
        "executor": "container",
        "image": "python",
        "size": "small",
        "command": ["python", "-c"],
        "args": ["print(6 * 7)"],
        "env": {"DATA": "/data"},
        "retries": {"count": 2, "interval_s": 30},
        "timeout_s": 3600,
    }
    for number, name in enumerate(["nightly-report", "每日汇总", LONG]):
        document = {
            "name": name,
            "queue": queue.name,
            "nodes": [node],
            "schedules": [{"cron": "0 3 * * 1-5", "timezone": "Asia/Shanghai"}],
            "alerts": [
                {
                    "channel": "mail",
                    "to": ["wei@example.com", "everybody-who-is-on-call-this-week@research.example.com"],
                },
                {"channel": "webhook", "url": "https://hooks.example.com/services/a/rather/long/path/of/a/webhook"},
            ],
        }
        flow = services.create_flow(actor=actor, document=document)
        if number < 2:
            runs_of(flow, queue)
        if number == 1:
            services.set_paused(actor=actor, flow=flow, paused=True)


def runs_of(flow: Flow, queue: Queue) -> None:
    """One run in each state with its attempts and a log."""
    for number, state in enumerate(["running", "queued", "cancelling", "succeeded", "failed", "cancelled", "skipped"]):
        begun = state not in ("queued", "skipped")
        over = state in ("succeeded", "failed", "cancelled")
        run = Run.objects.create(
            flow=flow,
            version=flow.version,
            queue=queue,
            state=state,
            state_since=ago(hours=number),
            trigger="schedule",
            scheduled_at=ago(hours=number, minutes=1),
            started_at=ago(hours=number) if begun else None,
            finished_at=ago(hours=number, minutes=-3, seconds=-7) if over else None,
            reason_code="exit_code" if state == "failed" else "",
            reason_params={"exit_code": 3},
            reason_evidence=["Traceback (most recent call last):", "ValueError: no rows"] if state == "failed" else [],
        )
        if state == "skipped":
            continue
        attempt = Attempt.objects.create(
            run=run,
            queue=queue,
            node="main",
            number=1,
            not_before=ago(hours=number),
            state=state,
            state_since=ago(hours=number),
            started_at=run.started_at,
            finished_at=run.finished_at,
            exit_code={"succeeded": 0, "failed": 3}.get(state),
            log_complete=over,
            reason_code=run.reason_code,
            reason_params=run.reason_params,
            pod_name=f"t-{number}",
            last_events=attempt_events(NOW, about=f"t-{number}") if begun else [],
        )
        text = "".join(
            f"2026-11-30T0{number}:00:{second:02d}Z row {second} 处理完成\n" for second in range(40)
        ).encode()
        LogChunk.objects.create(
            day=attempt.created_at.date(), attempt_id=attempt.pk, first=0, size=len(text), packed=zlib.compress(text)
        )
        attempt.log_bytes = len(text)
        attempt.save(update_fields=["log_bytes"])


if __name__ == "__main__":
    main()
