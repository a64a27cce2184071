#!/usr/bin/env python3
"""Says what a reader of a ctest run wants to know at its end, from the JUnit files it wrote.

    outcomes.py FILE             how many tests were skipped, and why
    outcomes.py --failed FILE…   which tests failed, the end of what each printed, and their names
                                 once more, together
"""
import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

LINES_OF_A_FAILURE = 40


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


def tell_skipped(cases):
    skipped = [case for case in cases if case.get("status") in ("notrun", "disabled")]
    if not skipped:
        print("No test was skipped.")
        return
    print(f"{len(skipped)} tests were skipped:")
    for text, count in collections.Counter(map(reason, skipped)).most_common():
        print(f"  {count:4d}  {text}")


def tell_failed(cases):
    failed = [case for case in cases if case.get("status") == "fail"]
    for case in failed:
        why = case.find("failure")
        why = (why.get("message") or "failed") if why is not None else "failed"
        print(f"\n-- {case.get('name')}: {why}, after {float(case.get('time') or 0):.1f} s")
        lines = (case.findtext("system-out") or "it printed nothing").rstrip().splitlines()
        if len(lines) > LINES_OF_A_FAILURE:
            print(f"   ({len(lines) - LINES_OF_A_FAILURE} lines before these)")
        for line in lines[-LINES_OF_A_FAILURE:]:
            print(f"   {line}")
    print(f"\n{len(failed)} failed:")
    for case in failed:
        print(f"   {case.get('name')}")


def main():
    arguments = sys.argv[1:]
    tell = tell_failed if arguments[:1] == ["--failed"] else tell_skipped
    status = 0
    for file in arguments[1:] if tell is tell_failed else arguments:
        try:
            tell(list(ElementTree.parse(file).getroot().iter("testcase")))
        except (OSError, ElementTree.ParseError) as error:
            print(f"outcomes.py: cannot read the list of tests: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
