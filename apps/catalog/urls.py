"""Pages of the catalogue."""

from __future__ import annotations

from django.urls import path
from django.utils.translation import gettext_lazy as _

from apps.catalog import views

app_name = "catalog"

urlpatterns = [
    path("images", views.ImageList.as_view(), name="images"),
    path("images/new", views.ChangeImage.as_view(title=_("New image")), name="image-new"),
    path("images/<uuid:pk>", views.ChangeImage.as_view(), name="image"),
    path("sizes", views.SizeList.as_view(), name="sizes"),
    path("sizes/new", views.ChangeSize.as_view(title=_("New size")), name="size-new"),
    path("sizes/<uuid:pk>", views.ChangeSize.as_view(), name="size"),
]
