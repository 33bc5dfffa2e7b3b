"""Sentences for the reasons of queues."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from apps.core.reasons import Wording

WORDINGS = {
    "books_differ": Wording(
        sentence=_("The books of the queue “{queue}” differ: ledger, the pods' limits, the cluster's count, the pods."),
        next=_("Check the quota on the queue's page; have the cluster count anew when its count did not fall."),
    ),
    "queue_cluster_silent": Wording(
        sentence=_("The cluster “{cluster}” does not answer, so the queue's namespace cannot be brought up to date."),
        next=_("The portal tries again by itself. What runs in the queue goes on."),
        tone="waiting",
    ),
    "queue_refused": Wording(
        sentence=_("The cluster “{cluster}” refused a part of the queue: {part}."),
        next=_("An administrator should look at the cluster's check page: permissions, or a rule of the cluster."),
    ),
    "queue_cluster_too_old": Wording(
        sentence=_("The cluster “{cluster}” runs a Kubernetes that is too old, so nothing was made there."),
        next=_("Choose another cluster, or have this one upgraded: then the queue is made by itself."),
    ),
    "queue_namespace_foreign": Wording(
        sentence=_("The namespace {namespace} exists in the cluster and is not this queue's."),
        next=_("The portal touches nothing there. An administrator has to look at it by hand."),
    ),
    "queue_namespace_ending": Wording(
        sentence=_("The cluster is deleting the namespace {namespace} and everything in it."),
        next=_("The queue is gone when the namespace is gone."),
        tone="waiting",
    ),
}
