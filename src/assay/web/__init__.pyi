from .app import build_app as build_app
from .server import ViewServer as ViewServer
from .server import ViewSettings as ViewSettings
