#!/usr/bin/env python3
"""Runs NVIDIA's nccl-tests, as they are, on our libnccl.so.2 and the stand-in for CUDA.

The environment variable NCCL_TESTS_DIR names a built copy: the folder with its *_perf programs.
Without it the test is skipped (exit code 77). What this says: that the library's interface is what
unmodified programs expect, and that nothing hangs. What it does not: anything of a real device or
of speed. Those programs check values by kernels, which the stand-in refuses; where they were built
with DSO=1 they get values and their check from our libverifiable.so.0 instead. Otherwise nothing
says that values are right, and one run makes sure that a kernel is refused, not faked.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
SIZES = ["-b", "8", "-e", "1M", "-f", "16"]
ROWS = 5  # 8, 128, 2048, 32768 and 524288 bytes
WRONG = -5  # which field of a line of results counts wrong values, out of place
LIMIT_S = 120  # of one run; most take less than a second
VERIFIABLE = "libverifiable.so.0"

# How many devices, threads and graphs.
SHAPES = ["-g 1", "-g 2", "-g 3", "-g 4", "-g 8", "-t 2", "-t 5", "-t 2 -g 3", "-t 7",
          "-g 2 -G 2", "-t 2 -G 2"]
# For one program: every type with every operation; calls that block or are grouped; registered
# buffers; the default stream; misaligned buffers; communicators made by threads; two captures.
MORE = ["-g 2 -n 2 -b 1K -e 1K -d all -o all", "-g 2 -n 4 -z 1", "-g 2 -n 4 -m 4",
        "-g 2 -n 4 -R 1", "-g 2 -n 4 -R 2", "-t 2 -n 4 -y 1", "-g 2 -n 4 -u 1",
        "-t 2 -g 2 -n 4 -p 1", "-g 3 -n 3 -G 3 -m 2"]
# For another: less than an element for each rank, down to buffers of no bytes.
FEW = ["-g 8 -n 2 -b 8 -e 8", "-t 3 -n 2 -b 4 -e 64 -f 2"]


def environment(arguments):
    found = dict(os.environ)
    folders = [str(pathlib.Path(arguments.nccl).parent), arguments.stand_in]
    found["LD_LIBRARY_PATH"] = ":".join(folders)
    found["CUDA_STAND_IN_DEVICES"] = "8"  # not TUTTI_...: those are settings of the library
    found["NCCL_DEBUG"] = "INFO"
    return found


def trace(program, arguments):
    """What the loader would load for the program."""
    return subprocess.run(
        [program], env=environment(arguments) | {"LD_TRACE_LOADED_OBJECTS": "1"},
        capture_output=True, text=True, timeout=LIMIT_S).stdout


def loads_ours(program, arguments):
    """Whether the loader gives the program our library and the stand-in."""
    traced = trace(program, arguments)
    wanted = {"libnccl.so.2": pathlib.Path(arguments.nccl).parent,
              "libcudart.so.13": pathlib.Path(arguments.stand_in)}
    if VERIFIABLE in traced:
        wanted[VERIFIABLE] = pathlib.Path(arguments.stand_in)
    for name, folder in wanted.items():
        found = re.search(rf"{re.escape(name)} => (\S+)", traced)
        if not found:
            return f"it does not load {name}"
        if pathlib.Path(found.group(1)).parent.resolve() != folder.resolve():
            return f"its {name} is {found.group(1)}"
    return None


def ranks_of(shape):
    """Threads, times devices of each."""
    ranks = 1
    for count in re.findall(r"-[tg] (\d+)", shape):
        ranks *= int(count)
    return ranks


def run(program, options, arguments):
    """(exit code, output) of a run; the code is None where it took too long."""
    command = [program, *options]
    try:
        done = subprocess.run(command, env=environment(arguments), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout


def results_of(output):
    """The lines of results, as their fields."""
    return [line.split() for line in output.splitlines()
            if re.match(r" +\d+ +\d+ +\w+ ", line)]


def complaint(code, output, rows, checked):
    """What is wrong with a run that should have been good, or None."""
    if code is None:
        return f"still running after {LIMIT_S} s"
    if code != 0:
        return f"exit code {code}"
    if "CUDA stand-in" not in output:
        return "it did not use the stand-in's devices"
    if "kernels make calls in device memory" not in output:
        return "kernels did not make its calls"
    if not re.search(r"^# Out of bounds values : 0 OK", output, re.MULTILINE):
        return "it did not come to its end"
    results = results_of(output)
    if rows is not None and len(results) != rows:
        return f"{len(results)} lines of results instead of {rows}"
    if not results:
        return "no results"
    if checked and any(fields[WRONG] != "0" for fields in results):
        return "values were not checked, or were wrong"
    return None


def can_be_right(program, options):
    """The steps of hypercube_perf need what those before them received. A thread that speaks for
    several ranks has all of them in one group, where nothing waits for anything."""
    shape = " ".join(options)
    one_each = "-g" not in options or "-g 1" in shape
    return pathlib.Path(program).name != "hypercube_perf" or one_each or ranks_of(shape) <= 2


def check(program, options, arguments, rows):
    """`options` after what says whether values are checked."""
    checked = VERIFIABLE in trace(program, arguments) and can_be_right(program, options)
    options = ["-c", "1" if checked else "0", *options]
    code, output = run(program, options, arguments)
    wrong = complaint(code, output, rows, checked)
    name = pathlib.Path(program).name
    print(f"{'FAILED' if wrong else 'ok':7}{name} {' '.join(options)}", flush=True)
    if wrong:
        print(f"  {wrong}; its last words:\n" + "\n".join(output.splitlines()[-15:]), flush=True)
    return wrong is None


def check_refusal(program, arguments):
    """Values are checked by kernels: that must fail, and say why."""
    code, output = run(program, ["-g", "2", "-c", "1", "-b", "1K", "-e", "1K"], arguments)
    good = code not in (None, 0) and "a kernel was launched and refused" in output
    print(f"{'ok' if good else 'FAILED':7}{pathlib.Path(program).name} -c 1 is refused", flush=True)
    return good


def check_all(programs, arguments):
    good = True
    for program in programs:
        wrong = loads_ours(program, arguments)
        if wrong:
            print(f"FAILED {program.name}: {wrong}")
            return False
        for shape in SHAPES:
            ranks = ranks_of(shape)
            if program.name == "hypercube_perf" and ranks & (ranks - 1) != 0:
                continue  # it does nothing then
            good &= check(str(program), [*SIZES, "-n", "5", *shape.split()], arguments, ROWS)
    all_reduce = next(p for p in programs if p.name == "all_reduce_perf")
    for more in MORE:
        good &= check(str(all_reduce), [*SIZES, *more.split()], arguments, None)
    all_gather = next(p for p in programs if p.name == "all_gather_perf")
    for few in FEW:
        good &= check(str(all_gather), few.split(), arguments, None)
    if VERIFIABLE not in trace(all_reduce, arguments):
        good &= check_refusal(str(all_reduce), arguments)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nccl", required=True, help="our libnccl.so.2")
    parser.add_argument("--stand-in", required=True, help="the folder of the stand-in for CUDA")
    arguments = parser.parse_args()
    folder = os.environ.get("NCCL_TESTS_DIR")
    if not folder:
        print("skipped: NCCL_TESTS_DIR names no built copy of nccl-tests")
        return SKIPPED
    programs = sorted(pathlib.Path(folder).glob("*_perf"))
    if not any(program.name == "all_reduce_perf" for program in programs):
        print(f"NCCL_TESTS_DIR is {folder}, which has no all_reduce_perf")
        return 1
    return 0 if check_all(programs, arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
