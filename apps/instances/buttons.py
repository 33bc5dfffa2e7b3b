"""The buttons of an instance's page, and what each of them takes away."""

from __future__ import annotations

from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from apps.core.actors import Actor
from apps.core.pages import Action, url
from apps.instances import entering, entrances
from apps.instances.models import Instance
from apps.instances.states import LAUNCHED, InstanceState
from apps.tenants import access
from apps.tenants.models import Role
from kubekit.specs import HOME_PATH

S = InstanceState


def of(actor: Actor, instance: Instance) -> list[Action]:
    """The buttons: what is possible in this state for this person; the first one is the main one."""
    if instance.state == S.DELETED:
        return []
    may_act = access.may_act_on(actor, instance.queue, instance.owner_id)
    found: list[Action] = []
    if entering.may_enter(actor, instance) and instance.state == S.RUNNING and entrances.has_lab(instance):
        found.append(
            Action(
                verb="enter",
                label=_("Open JupyterLab"),
                url=url("instances:enter", instance),
                icon="external-link",
                new_tab=True,
                primary=True,
            )
        )
        found.append(
            Action(
                verb="enter-editor",
                label=_("Open in VS Code"),
                url=url("instances:enter", instance),
                icon="code",
                new_tab=True,
                fields={"to": "editor"},
            )
        )
    if may_act and instance.state in {S.STOPPED, S.FAILED}:
        found.append(_post(instance, "start", _("Start"), "player-play", primary=True))
    if may_act and instance.state in LAUNCHED | {S.STOPPING}:
        if instance.state in LAUNCHED:
            found.append(_post(instance, "stop", _("Stop"), "player-stop", lost=stop_loses(instance)))
            if instance.state == S.RUNNING and not instance.next_key:
                found.append(_post(instance, "rotate-key", _("Change the key"), "key", lost=rotate_loses(instance)))
            found.append(_post(instance, "restart", _("Restart"), "refresh", lost=stop_loses(instance)))
        elif instance.wants_to_run:
            found.append(_post(instance, "stop", _("Do not start again"), "player-stop"))
        else:
            found.append(_post(instance, "start", _("Start again"), "player-play"))
    if may_act and instance.state != S.DELETING:
        found.append(
            Action(
                verb="change",
                label=_("Change"),
                url=url("instances:change", instance),
                icon="adjustments",
                post=False,
            )
        )
    found += _whole(actor, instance, may_act=may_act)
    schedule = schedule_url(instance) if instance.state != S.DELETING else ""
    if schedule and access.may(actor, instance.queue, Role.MEMBER):
        found.append(Action(verb="schedule", label=_("Schedule this"), url=schedule, icon="calendar-plus", post=False))
    if may_act and instance.state != S.DELETING:
        found.append(_post(instance, "delete", _("Delete"), "trash", lost=delete_loses(instance)))
    return found


def _whole(actor: Actor, instance: Instance, *, may_act: bool) -> list[Action]:
    """What is done with it as a whole."""
    if instance.state == S.DELETING:
        return []
    offered = [("clone", _("Make another one like it"), "copy", access.may(actor, instance.queue, Role.MEMBER))]
    offered += [
        ("rename", _("Rename"), "pencil", may_act),
        ("share", _("Let somebody look"), "eye", may_act),
        ("transfer", _("Give to a colleague"), "user-share", may_act),
    ]
    return [
        Action(verb=verb, label=label, url=url(f"instances:{verb}", instance), icon=icon, post=False)
        for verb, label, icon, allowed in offered
        if allowed
    ]


def _post(instance: Instance, verb: str, label: str, icon: str, *, lost: str = "", primary: bool = False) -> Action:
    return Action(verb=verb, label=label, url=url(f"instances:{verb}", instance), icon=icon, lost=lost, primary=primary)


def stop_loses(instance: Instance) -> str:
    """What a stop takes away."""
    return _(
        "Programs and notebooks that run in “%(name)s” end, and what they hold in memory is lost. "
        "Files in the home and on other volumes stay. The key is dead at once."
    ) % {"name": instance.name}


def rotate_loses(instance: Instance) -> str:
    """What a new key takes away."""
    return _(
        "The present key of “%(name)s” is dead within seconds, also in tabs and programs that use it now: open tabs "
        "anew from here. Notebooks and terminals run on."
    ) % {"name": instance.name}


def delete_loses(instance: Instance) -> str:
    """What a deletion takes away and what it does not."""
    return _(
        "“%(name)s” is deleted: what runs in it ends, and files outside its volumes are lost. "
        "The home “%(home)s” and all other volumes stay."
    ) % {"name": instance.name, "home": instance.home.name}


def schedule_url(instance: Instance) -> str:
    """The flow form filled in from this instance; empty when there are no flows here."""
    try:
        base = reverse("flows:new")
    except NoReverseMatch:
        return ""
    facts = {
        "from": str(instance.pk),
        "name": instance.name,
        "image": instance.image.name,
        "size": instance.size.name,
        "queue": instance.queue.name,
        "volume": instance.home.name,
        "path": HOME_PATH,
        "workdir": HOME_PATH,
    }
    return f"{base}?{urlencode(facts)}"
