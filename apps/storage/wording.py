"""Sentences for the reasons of volumes."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.core.reasons import Wording

WORDINGS = {
    "volume_waits_queue": Wording(
        sentence=_("The volume waits until the queue “{queue}” is ready."),
        next=_("This takes a few seconds. If it lasts, look at the queue's page."),
        tone="waiting",
    ),
    "volume_cluster_silent": Wording(
        sentence=_("The cluster “{cluster}” does not answer, so the volume cannot be brought up to date."),
        next=_("The portal tries again by itself. Nothing on the volume is touched."),
        tone="waiting",
    ),
    "volume_refused": Wording(
        sentence=_("The cluster “{cluster}” refused the volume."),
        next=_("The evidence says why; tell an administrator, or delete the volume."),
    ),
    "volume_provisioning": Wording(
        sentence=_("The cluster has not found storage for the volume yet."),
        next=_("It keeps trying; tell an administrator if it lasts."),
        tone="waiting",
    ),
    "volume_first_use": Wording(
        sentence=_("The storage is made when the volume is mounted for the first time."),
        next=_("Choose it when you make an instance or a flow."),
        tone="info",
    ),
    "volume_growing": Wording(
        sentence=_("The volume is growing from {now} to {wanted}."),
        next=_("Some kinds of storage finish this when the volume is mounted next."),
        tone="waiting",
    ),
    "volume_grow_refused": Wording(
        sentence=_("The cluster does not let this volume grow; it has kept its size."),
        next=_("Make a larger volume and copy the files."),
        tone="info",
    ),
    "volume_gone": Wording(
        sentence=_("The volume's storage is no longer in the cluster; somebody deleted it there."),
        next=_("The portal does not put an empty one in its place. Delete the volume here when you have seen this."),
    ),
    "volume_storage_lost": Wording(
        sentence=_("The cluster reports the storage behind the volume as lost."),
        next=_("Tell an administrator; the evidence says what the cluster answered."),
    ),
    "volume_still_mounted": Wording(
        sentence=_("The cluster deletes the volume as soon as nothing mounts it any more."),
        next=_("Stop what uses it, or wait until it has ended."),
        tone="waiting",
    ),
}
