#!/usr/bin/env python3
"""names_test.py: what libnccl.so.2 shows: every name that NCCL has had, bound as NCCL binds it, and
nothing else; what it calls itself; and that it asks for no part of CUDA.

    names_test.py LIBRARY                 against the list below
    names_test.py LIBRARY --like NCCL     against the names that NVIDIA's library shows
    names_test.py LIBRARY --used-by FILE  that a program which is to use all of them does
"""

import argparse
import pathlib
import subprocess
import sys

SKIPPED = 77

# Up to 2.28.9.
NAMES = """
AllGather AllReduce AlltoAll Bcast Broadcast CommAbort CommCount CommCuDevice CommDeregister
CommDestroy CommFinalize CommGetAsyncError CommInitAll CommInitRank CommInitRankConfig
CommInitRankScalable CommRegister CommRevoke CommShrink CommSplit CommUserRank CommWindowDeregister
CommWindowRegister DevCommCreate DevCommDestroy Gather GetErrorString GetLastError GetUniqueId
GetVersion GinBarrierCreateRequirement GroupEnd GroupSimulateEnd GroupStart LLA2ACalcSlots
LLA2ACreateRequirement LsaBarrierCreateRequirement MemAlloc MemFree Recv RedOpCreatePreMulSum
RedOpDestroy Reduce ReduceScatter ResetDebugInit Scatter Send TeamLsa TeamRail TeamRankToLsa
TeamRankToWorld TeamWorld
"""
# Since 2.29 and 2.30.
NAMES += """
CommGetUniqueId CommGrow CommMemStats CommQueryProperties CommResume CommSuspend
GetLsaDevicePointer GetLsaMultimemDevicePointer GetMultimemDevicePointer GetPeerDevicePointer
GinInboxA2ACreateRequirement GinOutboxCreateRequirement ParamBind ParamDumpAll ParamGet
ParamGetAllParameterKeys ParamGetI16 ParamGetI32 ParamGetI64 ParamGetI8 ParamGetParameter
ParamGetStr ParamGetU16 ParamGetU32 ParamGetU64 ParamGetU8 PutSignal Signal WaitSignal
WinGetUserPtr
"""
# Since 2.31.
NAMES += """
AllGatherConfig AllReduceConfig AlltoAllConfig BroadcastConfig GatherConfig ReduceConfig
ReduceScatterConfig ScatterConfig
"""

# A tool that defines nccl* stands in front of it, and calls pnccl*.
WANTED = {"nccl" + name: "W" for name in NAMES.split()}
WANTED |= {"pnccl" + name: "T" for name in NAMES.split()}
WANTED["ncclResetDebugInitInternal"] = "T"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shown(library):
    """The names that a library defines for others, with their binding; versions stay in a name."""
    lines = run("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()
    return {line.split()[-1]: line.split()[-2] for line in lines}


def dynamic(library, tag):
    """The values of a tag of the dynamic section: SONAME, NEEDED."""
    lines = run("readelf", "-d", library).splitlines()
    return [line.split("[", 1)[1].rstrip("]") for line in lines if f"({tag})" in line]


def missing(found, wanted):
    for name, binding in sorted(wanted.items()):
        if name not in found:
            yield f"{name} is not there"
        elif found[name] != binding:
            yield f"{name} is bound {found[name]}, not {binding}"


def complaints_of_list(library):
    found = shown(library)
    yield from missing(found, WANTED)
    for name in sorted(set(found) - set(WANTED)):
        yield f"{name} has a version" if "@" in name else f"{name} is shown and should not be"
    if dynamic(library, "SONAME") != ["libnccl.so.2"]:
        yield f"calls itself {dynamic(library, 'SONAME')}, not libnccl.so.2"
    for needed in dynamic(library, "NEEDED"):
        if needed.startswith(("libcuda", "libnccl", "libnv")):
            yield f"asks for {needed}; programs without a GPU must be able to load it"


def complaints_of_likeness(library, like):
    """NCCL's own, if newer, may have names that ours is yet to learn: they are told, too."""
    theirs = {name: binding for name, binding in shown(like).items()
              if name.startswith(("nccl", "pnccl"))}
    if len(theirs) < 80:
        yield f"{like} shows {len(theirs)} names; is it NCCL?"
    yield from missing(shown(library), theirs)


def complaints_of_use(library, program):
    lines = run("nm", "-D", "--undefined-only", program).splitlines()
    used = {line.split()[-1] for line in lines}
    for name, binding in sorted(shown(library).items()):
        if name.startswith("nccl") and binding == "W" and name not in used:
            yield f"{name} is not used by {program}"


def complaints_of(given):
    if given.used_by:
        return complaints_of_use(given.library, given.used_by)
    if given.like:
        return complaints_of_likeness(given.library, given.like)
    return complaints_of_list(given.library)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--like")
    parser.add_argument("--used-by")
    given = parser.parse_args()
    if given.like is not None and not pathlib.Path(given.like).exists():
        print(f"skipped: there is no libnccl.so.2 of NVIDIA's at \"{given.like}\"")
        return SKIPPED
    complaints = list(complaints_of(given))
    print("\n".join(complaints) or "all names are right")
    return 1 if complaints else 0


sys.exit(main())
