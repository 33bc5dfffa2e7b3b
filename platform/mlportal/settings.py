"""Django's settings. What a person may change comes from `env.py`; nothing here reads the environment itself."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from mlportal import env, installed, secretfile
from mlportal.database import patience
from mlportal.generics import allow_type_arguments
from mlportal.headers import content_security_policy
from mlportal.paths import ROOT

allow_type_arguments()

ENVIRONMENT = env.read()
_secrets = secretfile.ensure(ENVIRONMENT.secret_file)


def _host(origin: str) -> str:
    """The host of an address without its port, as ALLOWED_HOSTS wants it."""
    return urlsplit(origin).netloc.removesuffix(f":{urlsplit(origin).port}")


BASE_DIR = ROOT
SECRET_KEY = _secrets.django_key
PORTAL_ENCRYPTION_KEYS = _secrets.encryption_keys
"""Fernet keys for secret columns; the first encrypts, all decrypt."""

DEBUG = ENVIRONMENT.debug
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", "testserver", _host(ENVIRONMENT.origin)]
PORTAL_ORIGIN = ENVIRONMENT.origin
PORTAL_APPS_DOMAIN = ENVIRONMENT.apps_domain
#: Where people reach the entrance by SSH; without a port there is none.
PORTAL_SSH_HOST, PORTAL_SSH_PORT = ENVIRONMENT.ssh_public
PORTAL_SSH_HOST_KEY_FILE = ENVIRONMENT.ssh_host_key_file
PORTAL_EGRESS_ALLOW = ENVIRONMENT.egress_allow
PORTAL_TOOLS_IMAGE = ENVIRONMENT.tools_image
"""What is put into images that were not made for the portal (docker/tools)."""
PORTAL_START_TIMEOUT_S = ENVIRONMENT.start_timeout_s
"""An instance fails when it has made no progress towards its start for this long."""
PORTAL_TASK_START_TIMEOUT_S = ENVIRONMENT.task_start_timeout_s
"""An attempt of a run is given up when its pod has not started for this long."""
PORTAL_TASK_GRACE_S = 10
"""Seconds between SIGTERM and SIGKILL for a program that is ended."""
PORTAL_LOG_CAP_BYTES = 20 * 1024 * 1024
"""How much of one attempt's log is kept."""
PORTAL_LOG_DAYS = ENVIRONMENT.log_days
"""For how many days the logs of attempts are kept."""
PORTAL_LEASE_S = ENVIRONMENT.lease_s
"""How long a worker has a row for itself; when it dies, this is when another one goes on."""
PORTAL_ORPHAN_GRACE_S = ENVIRONMENT.orphan_grace_s
"""How long an object that belongs to no row is left in a cluster before it is removed."""

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "rest_framework",
    "drf_spectacular",
    *(f"apps.{name}" for name in installed.APPS),
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "mlportal.headers.ContentSecurityPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "apps.core.middleware.actor_middleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "mlportal.urls"
ASGI_APPLICATION = "mlportal.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [ROOT / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    ["django.template.loaders.filesystem.Loader", "django.template.loaders.app_directories.Loader"],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.core.context.portal",
            ],
        },
    }
]

# --- data -----------------------------------------------------------------------------------------------------------

_database = ENVIRONMENT.database
_timeouts_ms = {
    "statement_timeout": 30_000,
    "lock_timeout": 5_000,
    "idle_in_transaction_session_timeout": 60_000,
}
# Indexes are read from memory or a solid-state disk: the server's default price of a page would have it read whole
# tables to find a few thousand rows. The time zone is set here because Django would need a statement for it.
_server_settings = {"random_page_cost": 1.1, "timezone": "UTC"}
_database_options: dict[str, Any] = {
    "options": " ".join(f"-c {name}={value}" for name, value in {**_timeouts_ms, **_server_settings}.items()),
    "connect_timeout": 5,
    # A firewall that forgets an idle connection says nothing: the kernel asks, and gives up after a minute.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": "mlportal",
    # Under ASGI each request has a thread of its own, so connections that last are kept in a pool per process.
    "pool": {
        "connection_class": patience.Connection,
        "min_size": 0,
        "max_size": 12,
        "timeout": 10,
        "max_idle": 60,
        "num_workers": 1,
    },
}
if _database.sslmode:
    _database_options["sslmode"] = _database.sslmode
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "mlportal.database",
        "NAME": _database.name,
        "USER": _database.user,
        "PASSWORD": _database.password,
        "HOST": _database.host,
        "PORT": _database.port,
        "CONN_HEALTH_CHECKS": False,  # the backend looks for itself
        "OPTIONS": _database_options,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_in_memory = ENVIRONMENT.redis_url == env.MEMORY
if _in_memory:
    CACHES: dict[str, dict[str, Any]] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    CHANNEL_LAYERS: dict[str, dict[str, Any]] = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    CELERY_BROKER_URL = "memory://here"  # without a host it warns and takes localhost
else:
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": ENVIRONMENT.redis_url,
            "KEY_PREFIX": "mlportal",
            "TIMEOUT": 300,
        }
    }
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {
                # Receiving blocks for seconds on purpose; redis-py's own time-out would cut it.
                "hosts": [{"address": ENVIRONMENT.redis_url, "socket_timeout": None}],
                "prefix": "mlportal-live",
                "capacity": 500,
                "expiry": 30,
            },
        }
    }
    CELERY_BROKER_URL = env.broker_url(ENVIRONMENT.redis_url)
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 600, "socket_timeout": 30, "socket_keepalive": True}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "mlportal"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False

# --- people ---------------------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "tenants.User"
LOGIN_URL = "/sign-in"
LOGIN_REDIRECT_URL = "/"
SESSION_ENGINE = "django.contrib.sessions.backends.db"
SESSION_COOKIE_NAME = "mlportal-session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = ENVIRONMENT.origin.startswith("https:")
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 14 * 24 * 3600
CSRF_COOKIE_NAME = "mlportal-csrf"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE
CSRF_COOKIE_SAMESITE = "Lax"
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

# --- security headers -----------------------------------------------------------------------------------------------

CONTENT_SECURITY_POLICY = content_security_policy(apps_domain=ENVIRONMENT.apps_domain, port=ENVIRONMENT.public_port)
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
# Not "same-origin": browsers would then send "Origin: null" with the ticket posted to an instance's host.
SECURE_REFERRER_POLICY = "strict-origin-when-cross-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"

# --- words and files ------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [ROOT / "platform" / "mlportal" / "locale"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATIC_ROOT = ENVIRONMENT.home.static
STATICFILES_DIRS = [ROOT / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "mlportal.browser.PackageFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if _in_memory or DEBUG
        else "mlportal.browser.ManifestStorage"
    },
}
WHITENOISE_USE_FINDERS = _in_memory or DEBUG
WHITENOISE_MAX_AGE = 0 if WHITENOISE_USE_FINDERS else 60

DEFAULT_HOME_BYTES = 10 << 30
"""Size of the home volume that a person gets at first use in a queue."""

# --- mail -----------------------------------------------------------------------------------------------------------

DEFAULT_FROM_EMAIL = ENVIRONMENT.mail_from
EMAIL_TIMEOUT = 10
if ENVIRONMENT.smtp_url:
    _smtp = urlsplit(ENVIRONMENT.smtp_url)
    EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    EMAIL_HOST = _smtp.hostname
    EMAIL_PORT = _smtp.port or (465 if _smtp.scheme == "smtps" else 25)
    EMAIL_HOST_USER = unquote(_smtp.username or "")
    EMAIL_HOST_PASSWORD = unquote(_smtp.password or "")
    EMAIL_USE_SSL = _smtp.scheme == "smtps"
    EMAIL_USE_TLS = _smtp.scheme == "smtp+starttls"
else:
    EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"

# --- REST -----------------------------------------------------------------------------------------------------------

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.core.bodies.BodyParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.tenants.authentication.BearerAuthentication",
        "apps.tenants.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "EXCEPTION_HANDLER": "apps.core.api.problem_handler",
}
SPECTACULAR_SETTINGS = {"TITLE": "ML portal", "VERSION": "1", "SERVE_INCLUDE_SCHEMA": False}

# --- log: one line per event ----------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "mlportal.logs.LineFormatter",
            "format": "{asctime} {levelname:<7} {name}: {message}",
            "style": "{",
        }
    },
    "handlers": {"console": {"class": "mlportal.logs.StandardError", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        "django.utils.autoreload": {"level": "WARNING"},
        "uvicorn": {"level": "INFO", "handlers": [], "propagate": True},
        "uvicorn.access": {"level": "WARNING", "handlers": [], "propagate": True},
        "celery": {"level": "WARNING"},
        "celery.app.trace": {"level": "WARNING"},
    },
}
