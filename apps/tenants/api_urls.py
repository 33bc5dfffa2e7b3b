"""REST routes of people, teams, queues and tokens."""

from rest_framework.routers import SimpleRouter

from apps.tenants.api_tokens import TokenViewSet

router = SimpleRouter(trailing_slash=False)
router.register("tokens", TokenViewSet, basename="token")

urlpatterns = router.urls
