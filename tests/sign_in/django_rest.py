"""A sign-in with Django's REST framework at /, and one with a form of Django at /form, which respond with the name that they read.

    django_rest.py PORT
"""

import sys
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

# Where scripts/setup installs what Debian has in an older version.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "target/tools/python"))

import django  # noqa: E402
from django.conf import settings  # noqa: E402

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "rest_framework"],
    LOGGING_CONFIG=None,
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_PERMISSION_CLASSES": [],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "UNAUTHENTICATED_USER": None,
    },
)
django.setup()

from django.contrib.auth.forms import UsernameField
from django.core.wsgi import get_wsgi_application
from django.http import JsonResponse
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.response import Response


@api_view(["POST"])
def rest(request):
    return Response({"username": request.data.get("username")})


def form(request):
    return JsonResponse({"username": UsernameField().clean(request.POST.get("username"))})


urlpatterns = [path("", rest), path("form", form)]


class Silent(WSGIRequestHandler):
    def log_message(self, *_):
        pass


make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application(), handler_class=Silent).serve_forever()
