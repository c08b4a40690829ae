"""Prints the ten slowest tests of a JUnit report of cargo-nextest, or those that failed.

Usage: junit.py REPORT [--failed]
"""

import sys
import xml.etree.ElementTree as tree

# Of what a failed test printed, its end says the most.
LINES = 12


def name(case):
    return f"{case.get('classname')} {case.get('name')}"


def slowest(cases):
    print("the ten slowest tests:")
    for case in sorted(cases, key=lambda case: float(case.get("time")), reverse=True)[:10]:
        print(f"{float(case.get('time')):8.1f} s  {name(case)}")


def failed(cases):
    for case in cases:
        flaky = case.find("flakyFailure")
        failed_with = [case.find(kind) for kind in ("failure", "error")]
        if flaky is not None:
            print(f"passed at the second try: {name(case)}")
        if any(kind is not None for kind in failed_with):
            print(f"failed: {name(case)}")
            printed = f"{case.findtext('system-out') or ''}\n{case.findtext('system-err') or ''}"
            lines = [line for line in printed.splitlines() if line.strip()]
            for line in lines[-LINES:]:
                print(f"    {line[:300]}")


cases = list(tree.parse(sys.argv[1]).iter("testcase"))
(failed if "--failed" in sys.argv[2:] else slowest)(cases)
