"""What importing the unit costs."""

import subprocess
import sys


def test_importing_the_unit_or_asking_for_help_loads_no_torch() -> None:
    code = (
        "import sys, assay.train\n"
        "from assay.cli import main\n"
        "main(['train', 'sft', '--help'])\n"
        "print(sorted({'torch', 'transformers', 'trl', 'peft', 'jinja2'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )

    assert done.stdout.endswith("\n[]\n")
