#!/usr/bin/env python3
"""clients_test.py: whether what was built against NCCL finds all of it in our libnccl.so.2:
PyTorch and CuPy, as a Python has them installed, and whoever looks names up as it runs, as JAX and
vLLM do, in the NCCL that is installed beside them: ours has to have all names of that one.

    clients_test.py LIBRARY

The environment variable NCCL_CLIENTS_PYTHON names the interpreter whose packages are meant; else it
is the one that runs this. Where none of them is there, or none that uses NCCL, the test is skipped
(exit code 77). No GPU is needed: nothing is called that would.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
NCCL = "libnccl.so.2"

# Where packages lie, without importing them.
WHERE = """
import importlib.util as u
for name in ("torch", "cupy_backends", "nvidia"):
    found = u.find_spec(name)
    for folder in (found.submodule_search_locations or []) if found else []:
        print(name, folder)
"""

# What a package's own functions say; NCCL calls itself, say, 22809.
ASK = {
    "torch": "import torch; print(bytes(torch.cuda.nccl.unique_id())[:8])",
    "cupy_backends": "from cupy_backends.cuda.libs import nccl; print(nccl.get_unique_id()[:8])",
}
# How the loader tells that it bound a name.
BOUND = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: \w+ symbol `(p?nccl[A-Z]\w*)'")


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=240, **more)


def names(library, *which):
    """The names of NCCL among those that a library has or, as of `which`, wants."""
    lines = run("nm", "-D", *which, library).stdout.splitlines()
    symbols = {line.split()[-1].split("@")[0] for line in lines if line}
    return {symbol for symbol in symbols if re.match(r"p?nccl[A-Z]", symbol)}


def libraries(folder):
    return [path for path in sorted(pathlib.Path(folder).rglob("*.so*"))
            if path.is_file() and not path.is_symlink()]


def complaints_of_names(package, folder, ours):
    """How many names its libraries want or have, and which of them are not ours."""
    wanted = {}
    for path in libraries(folder):
        # An NCCL that came along: others look its names up as they run.
        which = "--defined-only" if path.name.startswith(NCCL) else "--undefined-only"
        for name in names(path, which):
            wanted.setdefault(name, path.name)
    if wanted:
        print(f"{package}: {len(wanted)} names of {', '.join(sorted(set(wanted.values())))}")
    return len(wanted), [f"{package}: {path} has {name}, and ours has not"
                         for name, path in sorted(wanted.items()) if name not in ours]


def complaints_of_bindings(package, python, library):
    """Imports it with ours loaded before, and looks where the loader found each name."""
    with tempfile.TemporaryDirectory() as folder:
        done = run(python, "-c", ASK[package], env=os.environ | {
            "LD_PRELOAD": library, "LD_BIND_NOW": "1", "LD_DEBUG": "bindings",
            "LD_DEBUG_OUTPUT": f"{folder}/bindings"})
        words = "".join(path.read_text(errors="replace")
                        for path in pathlib.Path(folder).iterdir())
    if done.returncode != 0:
        return [f"{package} does not start with ours: {done.stderr[-2000:]}"]
    found = BOUND.findall(words)
    print(f"{package}: {len(found)} names bound; its id of a communicator begins with "
          f"{done.stdout.strip()}")
    away = [f"{package}: {name} of {user} is taken from {owner}" for user, owner, name in found
            if pathlib.Path(owner).resolve() != pathlib.Path(library).resolve()]
    if "tutti id" not in done.stdout:
        away.append(f"{package}: the id is not one of ours")
    return away if found else [f"{package}: the loader bound no name of NCCL"]


def main():
    library = sys.argv[1]
    python = os.environ.get("NCCL_CLIENTS_PYTHON", sys.executable)
    ours = names(library, "--defined-only")
    complaints, clients = [], 0
    for line in run(python, "-c", WHERE).stdout.splitlines():
        package, folder = line.split(maxsplit=1)
        count, wrong = complaints_of_names(package, folder, ours)
        complaints += wrong
        if count == 0:
            continue
        clients += 1
        if package in ASK:
            complaints += complaints_of_bindings(package, python, library)
    if clients == 0:
        print(f"skipped: {python} has no PyTorch or CuPy that uses NCCL, and no NCCL")
        return SKIPPED
    print("\n".join(complaints) or "all of it is ours")
    return 1 if complaints else 0


sys.exit(main())
