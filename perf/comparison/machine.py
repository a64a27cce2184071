"""Describes the machine and its state, so that a result can be read later. Linux only; what a
machine does not tell is left out. Knows nothing of contenders."""
import os
import pathlib
import platform
import re
import subprocess
import time


def read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def caches():
    found = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = {"Data": "d", "Instruction": "i"}.get(read(index / "type"), "")
        found.append(f"L{read(index / 'level')}{kind} {read(index / 'size')}")
    return ", ".join(found)


def core_count():
    pairs = {(read(cpu / "topology/physical_package_id"), read(cpu / "topology/core_id"))
             for cpu in pathlib.Path("/sys/devices/system/cpu").glob("cpu[0-9]*")
             if (cpu / "topology").exists()}
    return len(pairs)


def compiler():
    try:
        told = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=False)
        return told.stdout.splitlines()[0] if told.stdout else ""
    except OSError:
        return ""


def describe():
    cpuinfo = read("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", read("/proc/meminfo"), re.MULTILINE)
    system = re.search(r'^PRETTY_NAME="(.*)"', read("/etc/os-release"), re.MULTILINE)
    described = {
        "cpu": model.group(1) if model else platform.machine(),
        "cores": core_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
        "caches": caches(),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1) if memory else "",
        "kernel": f"{platform.system()} {platform.release()}",
        "system": system.group(1) if system else "",
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or
                    "not told (the frequency is not this system's to set)",
        "virtual": bool(re.search(r"^flags\s*:.*\bhypervisor\b", cpuinfo, re.MULTILINE)),
        "transparent_hugepage": read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "compiler": compiler(),
    }
    return {name: value for name, value in described.items() if value != ""}


def steering():
    """Settings from outside that change what is measured."""
    prefixes = ("TUTTI_", "OMPI_MCA_", "UCX_", "MPICH_", "MPIR_", "FI_", "HYDRA_", "PRTE_MCA_",
                "I_MPI_", "CCL_")
    return {name: value for name, value in sorted(os.environ.items())
            if name.startswith(prefixes) and "SECRET" not in name}


def busy_share(over_s=0.5):
    """Of all processors, by whatever runs now: the load average still has what ran before."""
    def counted():
        fields = [int(field) for field in read("/proc/stat").splitlines()[0].split()[1:]]
        return sum(fields[:8]), fields[3] + fields[4]
    total, idle = counted()
    time.sleep(over_s)
    later_total, later_idle = counted()
    return 1 - (later_idle - idle) / max(later_total - total, 1)


def yield_us():
    """What it costs to give a CPU up when there is nobody to give it to: the dearest CPU's.

    Half a microsecond where nothing else runs. Where something does, Linux gives it the time slice
    that was given up: 49 us at a niceness of -15, 1.4 ms at 0. Ranks that are more than cores
    hand the cores over by yielding, so that it is this, and no library, that is then measured.
    """
    before = os.sched_getaffinity(0)
    dearest = 0.0
    for cpu in before:
        os.sched_setaffinity(0, {cpu})
        started, yields = time.perf_counter(), 0
        while yields < 2000 and time.perf_counter() - started < 0.05:
            os.sched_yield()
            yields += 1
        dearest = max(dearest, 1e6 * (time.perf_counter() - started) / yields)
    os.sched_setaffinity(0, before)
    return dearest


class Quiet:
    """Waits for moments in which nothing else runs, but not for ever."""
    YIELD_US = 2.0  # no dearer where nothing else runs

    def __init__(self, patience_s, price=yield_us, sleep=time.sleep):
        self.left_s, self.price, self.sleep = patience_s, price, sleep
        self.prices = []  # of a yield, when it was no longer waited

    def wait(self):
        price = self.price()
        while price > self.YIELD_US and self.left_s > 0:
            self.sleep(0.2)
            self.left_s -= 0.3
            price = self.price()
        self.prices.append(price)

    def disturbed(self):
        """The share of the moments that were not quiet."""
        return sum(price > self.YIELD_US for price in self.prices) / max(len(self.prices), 1)


def cpu_times():
    """(all, stolen by the hypervisor), in ticks since boot."""
    fields = [int(field) for field in read("/proc/stat").splitlines()[0].split()[1:]]
    return sum(fields[:8]), fields[7] if len(fields) > 7 else 0


def stolen_share(before, after):
    total = after[0] - before[0]
    return (after[1] - before[1]) / total if total else 0.0
