#!/usr/bin/env python3
"""Runs a floor over all that it can do and fails where one element comes out wrong: each operation,
type and way, at sizes with and without a remainder, for two and for more ranks. The latter have two
CPUs, so that this is also the test of how the harness measures more ranks than cores: in batches.

  floors/floor_test.py PROGRAM     floor_socket over the loopback, and between two ranks only
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SIZES = (8, 100, 6000, 300000)  # few: on a busy machine every call waits for both cores
# First the one in which only one side receives: whoever sends afterwards must not wait for that.
OPERATIONS = "broadcast,all_reduce,all_gather,reduce_scatter,all_to_all"
KINDS = 5 * 3
SPAWN = pathlib.Path(__file__).resolve().parents[1] / "comparison" / "spawn.py"


def over_socket(program):
    return program.endswith("floor_socket")


def check(program, ranks):
    """The rows of a run, every one of which must be right."""
    with tempfile.TemporaryDirectory() as folder:
        stage, report = pathlib.Path(folder) / "stage", pathlib.Path(folder) / "report"
        stage.touch()
        spawn = [sys.executable, SPAWN, "2", "--"] if over_socket(program) else []
        cpus = set(sorted(os.sched_getaffinity(0))[:2])
        crowded = ranks > len(cpus)
        subprocess.run([*spawn, program, "--stage", stage, "--report", report,
                        "--operations", OPERATIONS,
                        "--types", "f32,bf16,f16", "--sizes", ",".join(map(str, SIZES)),
                        "--seconds", "0.004", "--least-calls", "2", "--most-calls", "20"],
                       env={**os.environ, "WORLD_SIZE": str(ranks)}, check=True, timeout=200,
                       preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        rows = [json.loads(line) for line in report.read_text().splitlines()][1:]
    wrong = [row for row in rows if row["wrong"]]
    if wrong or len(rows) != KINDS * len(SIZES):
        sys.exit(f"{ranks} ranks: {len(rows)} rows, wrong: {wrong}")
    if crowded != any(row["batch"] > 1 for row in rows):
        sys.exit(f"{ranks} ranks on {len(cpus)} CPUs, batches: {[row['batch'] for row in rows]}")
    return rows


def main():
    rows = check(sys.argv[1], 2)
    if not over_socket(sys.argv[1]):
        rows += check(sys.argv[1], 6)
    print("best ways: " + ", ".join(sorted({row["way"] for row in rows})))


if __name__ == "__main__":
    main()
