"""Template tags of the portal: states, reasons, times and quantities look the same on every page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django import template
from django.http import QueryDict
from django.template import Context
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.formats import localize
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.timezone import localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from apps.core import icons, links, looks, quantities, verbs, who
from apps.core.pages import Action, Column, Tab

register = template.Library()


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """``{% icon "player-play" %}``; ``filled/…`` for the filled ones."""
    return icons.draw(name, css)


@register.simple_tag
def chip(state: str, label: Any) -> SafeString:
    """A chip for a state that is no row of ours (an API object's condition, say)."""
    colour, shape = looks.LOOKS.get(state, ("secondary", "minus"))
    tone, _space, motion = colour.partition(" ")
    return format_html(
        '<span class="chip chip-{}{}" data-state="{}">{}<span>{}</span></span>',
        tone,
        " chip-moving" if motion else "",
        state,
        icons.draw(shape),
        label,
    )


@register.simple_tag
def state_chip(obj: Any) -> SafeString:
    """The chip of an object with a state: a colour, a shape and the word."""
    return chip(obj.state, obj.state_label)


@register.inclusion_tag("core/reason_banner.html", takes_context=True)
def reason_banner(context: Context, obj: Any) -> dict[str, Any]:
    """One sentence, why, and what to do, with the button that does it where the page offers that action."""
    reason = obj.reason
    actions: Sequence[Action] = context.get("actions") or ()
    action = next((one for one in actions if reason and reason.action and one.verb == reason.action), None)
    return {"reason": reason, "action": action, "object": obj, "csrf_token": context.get("csrf_token")}


@register.simple_tag
def ago(moment: datetime | None, empty: str = "") -> SafeString | str:
    """A relative time that counts on in the browser; the exact one on hover, in the reader's zone."""
    if moment is None:
        return empty or mark_safe('<span class="text-secondary">–</span>')
    return format_html(
        '<time datetime="{}" title="{} UTC" data-ago>{}</time>',
        moment.isoformat(timespec="seconds"),
        moment.strftime("%Y-%m-%d %H:%M:%S"),
        quantities.relative(moment),
    )


@register.simple_tag
def at(moment: datetime | None) -> SafeString | str:
    """An exact time; the browser shows it in the reader's zone, with the relative one on hover."""
    if moment is None:
        return mark_safe('<span class="text-secondary">–</span>')
    return format_html(
        '<time datetime="{}" title="{}" data-at>{}</time>',
        moment.isoformat(timespec="seconds"),
        quantities.relative(moment),
        localtime(moment).strftime("%Y-%m-%d %H:%M:%S"),
    )


@register.filter(name="bytes")
def bytes_(count: int | None) -> str:
    """``{{ volume.size_bytes|bytes }}``."""
    return "" if count is None else quantities.size(int(count))


@register.filter
def cpu(millis: int | None) -> str:
    """``{{ size.cpu_millis|cpu }}``."""
    return "" if millis is None else quantities.cpus(int(millis))


@register.filter
def duration(seconds: float | None) -> str:
    """``{{ run.seconds|duration }}``; also takes a timedelta."""
    if seconds is None:
        return ""
    return quantities.span(seconds.total_seconds() if hasattr(seconds, "total_seconds") else float(seconds))


@register.filter
def about(seconds: float | None) -> str:
    """``{{ rule.warning|about }}``: a length of time without seconds; also takes a timedelta."""
    if seconds is None:
        return ""
    return quantities.about(seconds.total_seconds() if hasattr(seconds, "total_seconds") else float(seconds))


@register.filter
def percent(part: float | None, whole: float | None) -> int:
    """``{{ used|percent:limit }}``: a whole number from 0 to 100, for bars."""
    if not part or not whole:
        return 0
    return max(1, min(100, round(100 * float(part) / float(whole))))


@register.filter
def pretty_json(value: Any) -> str:
    """JSON with indents, keys sorted, Chinese left readable."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True, default=str)


@register.filter
def item(mapping: Mapping[Any, Any], key: Any) -> Any:
    """``{{ mapping|item:key }}``."""
    return mapping.get(key, "")


@register.simple_tag
def copy(text: Any, label: str = "") -> SafeString:
    """A button that copies ``text``; ``label`` says what is copied to those who cannot see it."""
    return format_html(
        '<button type="button" class="btn-copy" data-copy="{}" aria-label="{}" title="{}">{}{}</button>',
        text,
        label or _("Copy %(text)s") % {"text": str(text)[:60]},
        _("Copy"),
        icons.draw("copy", "copy-idle"),
        icons.draw("check", "copy-done"),
    )


@register.simple_tag
def code(text: Any) -> SafeString:
    """An identifier in its own type with a copy button."""
    return format_html('<span class="ident"><code>{}</code>{}</span>', text, copy(text))


@register.simple_tag(takes_context=True)
def live_row(context: Context, obj: Any, url: str = "", kinds: str = "") -> SafeString:
    """Attributes of a ``<tr>`` (or any element) that refetches itself when its object changes.

    ``kinds`` names kinds of objects (``instance volume``) of which any change concerns it too, as with sums.
    """
    address = url or context["request"].path
    return format_html(
        'data-live="{}:{}{}" hx-get="{}{}row={}" hx-trigger="live" hx-target="this" hx-swap="outerMorph"',
        obj._meta.model_name,
        obj.pk,
        f" {kinds}" if kinds else "",
        address,
        "&" if "?" in address else "?",
        obj.pk,
    )


@register.simple_tag(takes_context=True)
def live_part(context: Context, obj: Any, part: str) -> SafeString:
    """Attributes of an object page's part (``header``, ``tab``) that refetches itself; ``kinds`` as in ``live_row``.

    The kinds are the view's ``live_kinds``, for its tab alone.
    """
    request = context["request"]
    kinds = getattr(context.get("view"), "live_kinds", "") if part == "tab" else ""
    query = request.GET.copy()
    query["part"] = part
    return format_html(
        'data-live="{}:{}{}" data-live-part hx-get="{}?{}" hx-trigger="live" hx-target="this" hx-swap="innerMorph"',
        obj._meta.model_name,
        obj.pk,
        f" {kinds}" if kinds else "",
        request.path,
        query.urlencode(),
    )


@register.inclusion_tag("core/action_button.html", takes_context=True)
def action_button(context: Context, action: Action, css: str = "", menu: bool = False) -> dict[str, Any]:
    """A button of an object page. In a menu it is an item of the menu."""
    return {"action": action, "css": css, "menu": menu, "csrf_token": context.get("csrf_token")}


@register.simple_tag
def url_or_none(name: str, *args: Any, **kwargs: Any) -> str:
    """The address of that name, or nothing when no app has it."""
    try:
        return reverse(name, args=args, kwargs=kwargs)
    except NoReverseMatch:
        return ""


@register.simple_tag(takes_context=True)
def with_query(context: Context, **changes: Any) -> str:
    """The query string of this page with some values changed; None or empty takes one out. The cursor goes."""
    query: QueryDict = context["request"].GET.copy()
    for name in ("cursor", "row", "part"):
        query.pop(name, None)
    for name, value in changes.items():
        if value in (None, ""):
            query.pop(name, None)
        else:
            query[name] = str(value)
    return f"?{query.urlencode()}" if query else "?"


@register.simple_tag
def rail(portal: Any, section: str) -> Any:
    """The rail's links with ``section`` marked."""
    return portal.links(section or "")


@register.filter
def main_action(actions: Sequence[Action]) -> Action | None:
    """The primary action, else the first."""
    return next((one for one in actions if one.primary), actions[0] if actions else None)


@register.filter
def other_actions(actions: Sequence[Action]) -> list[Action]:
    """All but the main one."""
    main = main_action(actions)
    return [one for one in actions if one is not main]


@register.simple_tag
def bar(used: Any, limit: Any, label: str = "") -> SafeString:
    """A quota bar: green, amber from 80 %, red when full; the text beside it says the numbers."""
    share = percent(used, limit)
    tone = "danger" if limit and used >= limit else ("warning" if share >= 80 else "primary")
    return format_html(
        '<progress class="meter meter-{}" max="100" value="{}" aria-label="{}">{} %</progress>',
        tone,
        share,
        label or _("in use"),
        localize(share),
    )


@register.filter
def field_kind(field: Any) -> str:
    """Which markup a form field takes: ``checkbox``, ``checks`` (several controls under one word), ``select`` or
    ``input``."""
    if getattr(field.field.widget, "is_group", False):
        return "checks"
    name = type(field.field.widget).__name__
    if name == "CheckboxInput":
        return "checkbox"
    if name in ("CheckboxSelectMultiple", "RadioSelect"):
        return "checks"
    return "select" if "Select" in name else "input"


@register.simple_tag
def form_control(field: Any, wrong: str = "") -> SafeString:
    """The widget of a bound field with its error and help tied to it; ``wrong`` names the field to focus."""
    kind = field_kind(field)
    base = {"select": "form-select", "checkbox": "form-check-input", "checks": "form-check-input"}.get(
        kind, "form-control"
    )
    attrs: dict[str, Any] = {
        "class": f"{field.field.widget.attrs.get('class', '')} {base}{' is-invalid' if field.errors else ''}".strip()
    }
    described = [f"{field.auto_id}-error"] if field.errors else []
    if field.help_text:
        described.append(f"{field.auto_id}-help")
    if described:
        attrs["aria-describedby"] = " ".join(described)
    if field.errors:
        attrs["aria-invalid"] = "true"
    if wrong and wrong == field.name:
        attrs["autofocus"] = True
    return SafeString(conditional_escape(field.as_widget(attrs=attrs)))


@register.simple_tag
def words() -> str:
    """The words that the browser's scripts need, as JSON for ``<body data-words>``."""
    return json.dumps(
        {
            "now": _("just now"),
            "ago": _("%(amount)s ago"),
            "in": _("in %(amount)s"),
            "s": _("%(n)s s"),
            "min": _("%(n)d min"),
            "h": _("%(n)d h"),
            "day": ngettext("%(n)d day", "%(n)d days", 1),
            "days": ngettext("%(n)d day", "%(n)d days", 2),
            "fresh": _("%(n)d new or changed: show"),
            "away": _("Not live since %(time)s; asking again every 10 s"),
            "back": _("Live again"),
            "copied": _("Copied"),
            "copy_failed": _("Copying is not allowed here; select the text instead."),
            "no_answer": _("The portal does not answer. Check the connection, then try again."),
            "fault": _("Something in the portal itself went wrong. It is written in the portal's log."),
            "sure": _("Yes"),
        },
        ensure_ascii=False,
    )


@register.simple_tag
def sort_state(page: Any, column: Column) -> dict[str, str]:
    """How a column is sorted now (``aria``) and what a click on its head asks for (``next``)."""
    if not column.sort:
        return {"aria": "", "next": ""}
    if page.sort == column.sort:
        return {"aria": "ascending", "next": f"-{column.sort}"}
    if page.sort == f"-{column.sort}":
        return {"aria": "descending", "next": column.sort}
    return {"aria": "", "next": column.sort}


@register.simple_tag
def tab_url(obj: Any, tab: Tab, first: bool) -> str:
    """The address of an object's tab: the first one is the object's own."""
    base = obj.get_absolute_url()
    return base if first else f"{base.rstrip('/')}/{tab.slug}"


@register.simple_tag
def audit_words(entry: Any) -> SafeString:
    """What an audit entry says: what was done, and for a change of state the step. The verb itself on hover."""
    step = verbs.step(entry.object_kind, entry.detail)
    done = verbs.words(entry.verb)
    if step is None:
        return format_html('<span title="{}">{}</span>', entry.verb, done)
    moved = format_html('<span class="text-secondary">{} →</span> {}', *step)
    if done == entry.verb:
        return format_html('<span title="{}">{}</span>', entry.verb, moved)
    return format_html('<span title="{}">{}</span> <span class="text-secondary">·</span> {}', entry.verb, done, moved)


@register.simple_tag
def actor(entry: Any) -> SafeString:
    """Who did what an audit entry says: a person, or a part of the portal by the name that people know."""
    if entry.actor_id:
        return format_html("{}{}", icons.draw("user"), entry.actor_name)
    return format_html(
        '{}<span title="{}">{}</span>', icons.draw("robot"), entry.actor_name, who.words(entry.actor_name)
    )


@register.simple_tag
def first_wrong(form: Any) -> str:
    """The name of the first field with an error; it takes the focus."""
    return next((field.name for field in form if field.errors), "")


@register.simple_tag
def split_more(form: Any) -> dict[str, Any]:
    """The visible fields in two parts: those that are asked, and those that a form names in ``more``."""
    names = frozenset(getattr(form, "more", ()))
    fields = form.visible_fields()
    more = [field for field in fields if field.name in names]
    return {
        "asked": [field for field in fields if field.name not in names],
        "more": more,
        "more_wrong": any(field.errors for field in more),
    }


@register.simple_tag(takes_context=True)
def panel_body(context: Context, drawn: Any) -> SafeString:
    """A panel of the home page with its own data alone; nothing when it links to a page that does not exist."""
    try:
        return _panel(context, drawn)
    except NoReverseMatch:
        return SafeString("")


def _panel(context: Context, drawn: Any) -> SafeString:
    return render_to_string(drawn.panel.template, {"panel": drawn.panel, **drawn.data}, request=context["request"])


@register.simple_tag
def object_link(kind: str, pk: Any, name: str) -> SafeString:
    """A link to an object known by kind and id alone; plain text when it has no page."""
    label = name or (str(pk)[:8] if pk else "–")
    url = links.address(kind, pk) if pk else ""
    word = format_html('<span class="text-secondary">{}</span> ', links.kind_name(kind))
    return word + (format_html('<a href="{}">{}</a>', url, label) if url else format_html("{}", label))
