"""REST routes of clusters."""

from rest_framework.routers import SimpleRouter

from apps.clusters.api import ClusterViewSet

router = SimpleRouter(trailing_slash=False)
router.register("clusters", ClusterViewSet, basename="cluster")

urlpatterns = router.urls
