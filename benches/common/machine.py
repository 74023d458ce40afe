"""What the kernel says of the machine and of processes: cores, CPU time, steal, memory."""

import os
import platform
import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cores:
    """The core of the proxy, and those of everything else."""

    proxy: frozenset
    others: frozenset

    @classmethod
    def of_this_machine(cls):
        """The proxy gets the last core for itself, unless there is only one."""
        *others, proxy = sorted(os.sched_getaffinity(0))
        return cls(frozenset([proxy]), frozenset(others or [proxy]))

    @property
    def is_shared(self):
        return self.proxy == self.others


def family(pid):
    """A process and its children."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [child for text in children.read_text().split() for child in family(int(text))]
    return found


def cpu_seconds(pid):
    """User and system time of a process and its children, since their start."""
    ticks = 0
    for member in family(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def memory_bytes(pid):
    """The proportional set size of a process and its children: shared pages count once."""
    texts = (Path(f"/proc/{member}/smaps_rollup").read_text() for member in family(pid))
    return sum(int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1]) for text in texts) * 1024


def raise_open_files():
    """Allows this process and its children as many open files as the system does; how many these are."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


@dataclass(frozen=True)
class Moment:
    """The time of all cores that was stolen by the hypervisor, and all their time, in ticks since the start."""

    stolen: int
    total: int

    @classmethod
    def now(cls):
        line = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        numbers = [int(number) for number in line]
        return cls(numbers[7], sum(numbers))

    def steal_since(self, earlier):
        """The stolen share of the time since an earlier moment."""
        return (self.stolen - earlier.stolen) / max(1, self.total - earlier.total)


def load_average():
    return os.getloadavg()[0]


def description():
    """The processor, its cores, the memory and the kernel."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)", cpuinfo, re.M)
    memory = int(re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)[1])
    is_virtual = " hypervisor" in cpuinfo
    return (
        f"{model[1] if model else platform.machine()}{', virtual' if is_virtual else ''}, {os.cpu_count()} cores, "
        f"{memory / 2**20:.0f} GiB, Linux {platform.release().split('-')[0]}, {time.strftime('%Y-%m-%d')}"
    )
