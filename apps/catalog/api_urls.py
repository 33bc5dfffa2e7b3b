"""REST routes of the catalogue."""

from rest_framework.routers import SimpleRouter

from apps.catalog.api import ImageViewSet, SizeViewSet

router = SimpleRouter(trailing_slash=False)
router.register("images", ImageViewSet, basename="image")
router.register("sizes", SizeViewSet, basename="size")

urlpatterns = router.urls
