#!/usr/bin/env python3
"""What the GPU kernels take of a device, from what ptxas said when they were compiled.

  kernel_figures.py FIGURES           every kernel is there for every architecture, none of them has
                                      a stack or spills
  kernel_figures.py FIGURES --table   prints them as docs/gpu-kernels.md shows them

Exit code 77: there are no figures, because the build found no nvcc.
"""
import argparse
import collections
import pathlib
import re
import sys

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
         "float64", "float8_e4m3", "float8_e5m2")
KERNELS = ("tutti_gpu_bytes", "tutti_gpu_exchange") + tuple("tutti_gpu_" + name for name in TYPES)
# Of 512 threads a block; more would not be launched.
REGISTERS_MAX = 128

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")

Figures = collections.namedtuple("Figures", "registers shared stack spills")


def read(text):
    """By kernel and architecture."""
    figures = {}
    current = stack = spills = None
    for line in text.splitlines():
        if entry := ENTRY.search(line):
            current = entry.groups()
        elif frame := STACK.search(line):
            stack = int(frame[1])
            spills = int(frame[2]) + int(frame[3])
        elif used := REGISTERS.search(line):
            shared = SHARED.search(line)
            figures[current] = Figures(int(used[1]), int(shared[1]) if shared else 0, stack, spills)
    return figures


def complaints(figures):
    for architecture in ARCHITECTURES:
        for kernel in KERNELS:
            found = figures.get((kernel, architecture))
            if found is None:
                yield f"{kernel} is not compiled for {architecture}"
            elif found.stack or found.spills:
                yield (f"{kernel} for {architecture}: {found.stack} bytes of stack, "
                       f"{found.spills} bytes of spills")
            elif found.registers > REGISTERS_MAX:
                yield f"{kernel} for {architecture}: {found.registers} registers"


def table(figures):
    print("| kernel | " + " | ".join(ARCHITECTURES) + " | stack | spills |")
    print("|---|" + "---|" * (len(ARCHITECTURES) + 2))
    for kernel in KERNELS:
        found = [figures[kernel, architecture] for architecture in ARCHITECTURES]
        print(f"| `{kernel}` | " + " | ".join(str(f.registers) for f in found)
              + f" | {max(f.stack for f in found)} | {max(f.spills for f in found)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", type=pathlib.Path, nargs="?")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.figures is None or not options.figures.exists():
        print("skipped: the build found no nvcc, or has not compiled the kernels")
        return 77
    figures = read(options.figures.read_text())
    if options.table:
        table(figures)
        return 0
    found = list(complaints(figures))
    for complaint in found:
        print(complaint)
    if not found:
        most = max(f.registers for f in figures.values())
        print(f"{len(figures)} kernels, no stack, no spills, at most {most} registers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
