"""REST routes of dev instances."""

from rest_framework.routers import SimpleRouter

from apps.instances.api import InstanceViewSet

router = SimpleRouter(trailing_slash=False)
router.register("instances", InstanceViewSet, basename="instance")

urlpatterns = router.urls
