from .app import build_app as build_app
from .static_report import MAX_REPORT_RUNS as MAX_REPORT_RUNS
from .static_report import check_report_target as check_report_target
from .static_report import write_static_report as write_static_report
from .view_server import ViewServer as ViewServer
from .view_server import ViewSettings as ViewSettings
