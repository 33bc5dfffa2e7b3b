"""Pages of the catalogue: everybody sees it, administrators change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from apps.catalog import facts, selectors, services
from apps.catalog.forms import ImageForm, SizeForm
from apps.catalog.models import Image, Purpose, Size
from apps.core.adminpages import AdminPage
from apps.core.pages import Choice, Column, FilterField, FormPage, ListPage, find


class _Catalogue(ListPage):
    def filters(self) -> Sequence[FilterField]:
        yes_no = (Choice(value="no", label=_("no")), Choice(value="yes", label=_("yes")))
        return (
            FilterField(name="retired", label=_("Retired"), choices=yes_no),
            FilterField(name="name", label=_("Search")),
        )

    def extra(self) -> Mapping[str, Any]:
        return {"may_change": self.actor.is_admin}


class ImageList(_Catalogue):
    """Images."""

    section = "images"
    title = gettext_lazy("Images")
    kind = "image"
    spec = selectors.IMAGE_LIST
    row_template = "catalog/image_row.html"
    new_label, new_url = gettext_lazy("New image"), "catalog:image-new"
    empty_title = gettext_lazy("There is no image yet.")
    empty_text = gettext_lazy("Instances and tasks start from images. An administrator adds them here.")
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("Reference"), narrow=False),
        Column(label=gettext_lazy("Purpose"), narrow=False),
        Column(label=gettext_lazy("Good for"), narrow=False),
        Column(label=gettext_lazy("Description"), narrow=False),
        Column(label=""),
    )

    def rows(self) -> QuerySet[Image]:
        return selectors.catalogue(self.actor)

    def filters(self) -> Sequence[FilterField]:
        purposes = [Choice(value=value, label=label) for value, label in Purpose.choices]
        return (FilterField(name="purpose", label=_("Purpose"), choices=purposes), *super().filters())

    def prepare(self, rows: Sequence[Image]) -> None:
        for row in rows:
            row.facts = facts.facts(row)  # type: ignore[attr-defined]


class SizeList(_Catalogue):
    """Sizes."""

    section = "sizes"
    title = gettext_lazy("Sizes")
    kind = "size"
    spec = selectors.SIZE_LIST
    row_template = "catalog/size_row.html"
    new_label, new_url = gettext_lazy("New size"), "catalog:size-new"
    empty_title = gettext_lazy("There is no size yet.")
    empty_text = gettext_lazy("A size is so much CPU and memory, perhaps with GPUs. An administrator adds them here.")
    columns = (
        Column(label=gettext_lazy("Name"), sort="name"),
        Column(label=gettext_lazy("CPU"), sort="cpu", numeric=True),
        Column(label=gettext_lazy("Memory"), sort="memory", numeric=True),
        Column(label=gettext_lazy("GPUs"), numeric=True),
        Column(label=""),
    )

    def rows(self) -> QuerySet[Size]:
        return Size.objects.for_actor(self.actor)


class _Change(AdminPage, FormPage):
    model: Any

    @property
    def row(self) -> Any:
        """The row of the address; None on the page that makes one."""
        pk = self.kwargs.get("pk")
        return None if pk is None else find(self.model.objects.for_actor(self.actor), pk)

    def initial(self) -> dict[str, Any]:
        row = self.row
        return {} if row is None else {name: getattr(row, name) for name in self.form.base_fields}


class ChangeImage(_Change):
    """A changed image, or under another title a new one."""

    section = "images"
    title = gettext_lazy("Change image")
    form = ImageForm

    @property
    def row(self) -> Any:
        pk = self.kwargs.get("pk")
        return None if pk is None else find(selectors.every(), pk)

    def form_kwargs(self) -> dict[str, Any]:
        others = selectors.every().exclude(pk=self.kwargs.get("pk")).order_by("name")
        return {"images": list(others)}

    def initial(self) -> dict[str, Any]:
        row = self.row
        if row is None:
            return {}
        selectors.with_teams([row])
        plain = {name: getattr(row, name) for name in self.form.base_fields if name not in {"teams", "replaced_by"}}
        return {**plain, "teams": row.team_names, "replaced_by": str(row.replaced_by_id or "")}

    def submit(self, data: dict[str, Any]) -> str:
        services.save_image(actor=self.actor, image=self.row, **data)
        return reverse("catalog:images")


class ChangeSize(_Change):
    """A changed size, or under another title a new one."""

    section = "sizes"
    title = gettext_lazy("Change size")
    form = SizeForm
    model = Size

    def submit(self, data: dict[str, Any]) -> str:
        services.save_size(actor=self.actor, size=self.row, **data)
        return reverse("catalog:sizes")
