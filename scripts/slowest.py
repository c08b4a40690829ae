"""The ten slowest tests of a JUnit report, as cargo-nextest writes it.

Usage: slowest.py REPORT
"""

import sys
import xml.etree.ElementTree as tree

cases = tree.parse(sys.argv[1]).iter("testcase")
cases = sorted(cases, key=lambda case: float(case.get("time")), reverse=True)
print("the ten slowest tests:")
for case in cases[:10]:
    print(f"{float(case.get('time')):8.1f} s  {case.get('classname')} {case.get('name')}")
