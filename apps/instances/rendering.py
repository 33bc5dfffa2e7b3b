"""What pages show of an instance besides its columns: manifests, the log's end, the form's panel, one CSP."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from django.conf import settings

from apps.catalog import facts, own
from apps.catalog.models import Image, Size
from apps.core import manifests
from apps.core.actors import Actor
from apps.core.errors import Invalid
from apps.instances import forecast, option_forms
from apps.instances.models import Instance
from apps.instances.options import Options
from apps.instances.spec import host_of, objects_of, url_of
from apps.storage.models import Volume
from apps.tenants.models import Queue


def policy_for(url: str) -> str:
    """The page's Content-Security-Policy with its one form allowed to go to that origin alone."""
    parts = urlsplit(url)
    rules = [rule.strip() for rule in settings.CONTENT_SECURITY_POLICY.split(";")]
    kept = [rule for rule in rules if rule and not rule.startswith("form-action")]
    return "; ".join([*kept, f"form-action {parts.scheme}://{parts.netloc}"])


def curl(instance: Instance) -> str:
    """How a program asks the instance; where its name leads nowhere but to this machine, curl is told so."""
    host = host_of(instance)
    port = instance.queue.cluster.apps_port or (443 if instance.queue.cluster.apps_scheme == "https" else 80)
    here = f"--resolve {host}:{port}:127.0.0.1 " if host.endswith(".localhost") else ""
    return f'curl {here}-H "Authorization: token $KEY" {url_of(instance)}api/status'


# --- the panel of the form -----------------------------------------------------------------------------------------


def panel(actor: Actor, chosen: Mapping[str, str], offered: Mapping[str, Any], more: Options) -> dict[str, Any]:
    """``Will it run?`` and ``Same by`` for what is chosen so far; nothing of it is stored."""
    queue: Queue | None = _chosen(offered["queues"], chosen.get("queue", ""))
    size: Size | None = _chosen(offered["sizes"], chosen.get("size", ""))
    image: Image | None = _chosen(offered["images"], chosen.get("image", ""))
    if queue is None or size is None or image is None:
        return {"forecast": None}
    if own_image := chosen.get("own_image", "").strip():
        try:
            image = own.draft(queue=queue, text=own_image)
        except Invalid as refusal:
            refused = {"answer": "never", "sentence": refusal.detail, "change": refusal.next}
            return {"forecast": refused, "refused": True}
    name = chosen.get("name", "").strip()
    return {
        "forecast": forecast.will_it_run(actor=actor, queue=queue, size=size),
        "mismatch": facts.mismatch(image, size),
        "own_image": image if own_image else None,
        "cli": _cli(image, size, queue, name, more),
        "rest": _rest(image, size, queue, name, more),
        "yaml": _yaml(actor, chosen, image, size, queue, name, more),
    }


def _chosen(rows: Sequence[Any], pk: str) -> Any:
    return next((row for row in rows if str(row.pk) == pk), None)


def _cli(image: Image, size: Size, queue: Queue, name: str, more: Options) -> str:
    option, what = ("--image", image.name) if image.team is None else ("--own-image", image.reference)
    words = ["portalctl", "instance", "create", option, what, "--size", size.name, "--queue", queue.name]
    if name:
        words += ["--name", name]
    return " ".join(_quoted(word) for word in [*words, *option_forms.words(more)])


def _quoted(word: str) -> str:
    return shlex.quote(word)


def _rest(image: Image, size: Size, queue: Queue, name: str, more: Options) -> str:
    what = {"image": image.name} if image.team is None else {"own_image": image.reference}
    body = {**what, "size": size.name, "queue": queue.name, **({"name": name} if name else {}), **more.stored()}
    return (
        f"curl -X POST {settings.PORTAL_ORIGIN}/api/v1/instances \\\n"
        f'  -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(json.dumps(body, ensure_ascii=False))}"
    )


def _yaml(
    actor: Actor, chosen: Mapping[str, str], image: Image, size: Size, queue: Queue, name: str, more: Options
) -> str:
    """The manifests of an instance that is not made: its id is the form's, its home the person's or a stand-in."""
    try:
        pk = UUID(chosen.get("once", ""))
    except ValueError:
        pk = uuid4()
    home = Volume.objects.for_actor(actor).filter(queue=queue, owner_id=actor.user_id, kind="home").first()
    draft = Instance(
        pk=pk,
        name=name or f"{image.name}-1",
        queue=queue,
        image=image,
        size=size,
        home=home or Volume(claim="home"),
        options=more.stored(),
        launch=1,
    )
    return manifests.text_of(objects_of, draft)
