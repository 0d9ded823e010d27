from .gateway_server import Gateway as Gateway
from .gateway_server import GatewaySettings as GatewaySettings
from .gateway_session import GatewaySession as GatewaySession
from .recorded_call import RecordedCall as RecordedCall
from .recorded_trajectory import build_recorded_trajectory as build_recorded_trajectory
from .request_parts import expand_request as expand_request
from .spending import GatewayLimits as GatewayLimits
