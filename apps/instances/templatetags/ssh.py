"""``{% ssh_way object as way %}``: how the reader of the page gets to an instance by SSH; None when there is no way."""

from __future__ import annotations

from django import template
from django.template import Context

from apps.instances import ssh
from apps.instances.models import Instance

register = template.Library()


@register.simple_tag(takes_context=True)
def ssh_way(context: Context, instance: Instance) -> ssh.Way | None:
    """See `apps.instances.ssh.way_to`."""
    return ssh.way_to(instance, context["request"].user.get_username())
