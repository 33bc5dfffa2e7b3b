"""REST routes of flows, runs and attempts."""

from rest_framework.routers import SimpleRouter

from apps.flows.api import AttemptViewSet, FlowViewSet, RunViewSet

router = SimpleRouter(trailing_slash=False)
router.register("flows", FlowViewSet, basename="flow")
router.register("runs", RunViewSet, basename="run")
router.register("attempts", AttemptViewSet, basename="attempt")

urlpatterns = router.urls
