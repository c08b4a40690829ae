"""Validate a Python stack from inside its image.

    python3 validate.py --spec spec.json --out report.json     (--out -: to stdout)

Reads what the stack promises (sfvalidate/spec.py), runs each check in processes of its own
(sfvalidate/runner.py) and writes one JSON report (sfvalidate/report.py), whatever the checks do.
Progress, one line per check, goes to stderr. Exits 0 when nothing failed, else 1.

Needs Python 3.9 or newer and nothing beyond the standard library: what a check imports is what
it tests. No number is in the report that was not measured here.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def load_package():
    """Import sfvalidate from beside this file, and leave nothing of this folder importable by
    the libraries under test (a spawned process of theirs runs this file again under another
    name: hence not only under __main__)."""
    sys.path.insert(0, HERE)
    try:
        import sfvalidate
    finally:
        sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    return sfvalidate


load_package()


def main():
    parser = argparse.ArgumentParser(prog="validate.py", description="validate a Python stack from inside its image")
    parser.add_argument("--spec", required=True, help="JSON file with what the stack promises")
    parser.add_argument("--out", required=True, help="where the JSON report goes; - is stdout")
    # The next three are how this program starts itself for one check.
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--unit", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--device", default="{}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        from sfvalidate import worker

        return worker.work(arguments.worker, arguments.unit, arguments.spec, arguments.device, arguments.out)
    from sfvalidate import report

    return report.validate(os.path.abspath(__file__), arguments.spec, arguments.out)


if __name__ == "__main__":
    sys.exit(main())
