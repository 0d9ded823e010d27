"""Half precision on machines that report AMX support but crash on its use."""

import subprocess
import sys
from functools import cache
from typing import Any

_PROBE_CODE = (
    "import torch; torch.ones(4, 32, dtype=torch.bfloat16) @ torch.ones(32, 64, "
    "dtype=torch.bfloat16)"
)
_PROBE_TIMEOUT_S = 120.0


def prepare_half_precision(dtype: Any, device: Any) -> None:
    """Disable oneDNN if it would crash the process in this dtype on this device."""
    import torch

    if device.type == "cpu" and dtype in (torch.bfloat16, torch.float16):
        _avoid_broken_amx()


@cache
def _avoid_broken_amx() -> None:
    # oneDNN multiplies half-precision matrices with AMX. Some virtual machines report AMX and
    # kill every process that uses it, so a subprocess tries it first.
    import torch

    if not torch.cpu._is_amx_tile_supported():
        return
    try:
        tried = subprocess.run(
            [sys.executable, "-c", _PROBE_CODE],
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return  # inconclusive: keep the default of torch
    if tried.returncode < 0:
        torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)
