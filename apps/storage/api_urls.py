"""REST routes of volumes."""

from rest_framework.routers import SimpleRouter

from apps.storage.api import VolumeViewSet

router = SimpleRouter(trailing_slash=False)
router.register("volumes", VolumeViewSet, basename="volume")

urlpatterns = router.urls
