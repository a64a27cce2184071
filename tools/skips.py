#!/usr/bin/env python3
"""Says how many tests of a ctest run were skipped, and why. Argument: ctest's JUnit file."""
import collections
import re
import sys
import xml.etree.ElementTree as ElementTree


def reason(case):
    """GoogleTest prints `file:line: Skipped`, then the reason on a line of its own."""
    if case.get("status") == "disabled":
        return "disabled in its source"
    output = case.findtext("system-out") or ""
    found = re.search(r": Skipped\n(.+)", output)
    if found:
        return found.group(1).strip()
    skipped = case.find("skipped")
    return (skipped.get("message") if skipped is not None else None) or "no reason given"


def main():
    try:
        cases = ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
    except (OSError, ElementTree.ParseError) as error:
        print(f"skips.py: cannot read the list of tests: {error}", file=sys.stderr)
        return 1
    skipped = [case for case in cases if case.get("status") in ("notrun", "disabled")]
    if not skipped:
        print("No test was skipped.")
        return 0
    print(f"{len(skipped)} tests were skipped:")
    for text, count in collections.Counter(map(reason, skipped)).most_common():
        print(f"  {count:4d}  {text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
