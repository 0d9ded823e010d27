"""`python -m assay`: the same as the command `assay`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # Python puts the current folder first. There, a `json.py` beside a manifest would take the
        # place of Python's own in everything below.
        sys.path.append(sys.path.pop(0))

    from assay.cli import main

    sys.exit(main())
