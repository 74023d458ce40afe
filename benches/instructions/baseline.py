"""The baseline, and how new counts differ from it."""

import json
import platform
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

TOLERANCE = 0.03


@dataclass(frozen=True)
class Build:
    """What counts depend on besides the source."""

    profile: str = ""
    rustc: str = ""
    architecture: str = ""

    @classmethod
    def of(cls, tidegate):
        """That of a binary. Its directory is named after the profile, and the compiler writes its version into it."""
        version = re.search(rb"rustc version ([^()\0]+?) \(", tidegate.read_bytes())
        # Some libraries choose their functions by the instructions that the processor has.
        cpu = Path("/proc/cpuinfo")
        has_avx2 = cpu.exists() and " avx2 " in cpu.read_text()
        architecture = platform.machine() + (" with AVX2" if has_avx2 else "")
        return cls(tidegate.resolve().parent.name, version[1].decode() if version else "unknown", architecture)


@dataclass(frozen=True)
class Baseline:
    """The counts of an earlier build."""

    build: Build = Build()
    instructions: dict = field(default_factory=dict)

    @classmethod
    def read(cls, path):
        """The baseline in a file; an empty one without a path."""
        if not path:
            return cls()
        found = json.loads(Path(path).read_text())
        instructions = found.pop("instructions")
        return cls(Build(**found), instructions)

    def write(self, path):
        Path(path).write_text(json.dumps({**asdict(self.build), "instructions": self.instructions}, indent=2) + "\n")

    def count(self, name):
        return self.instructions.get(name, "-")

    def difference(self, name, count):
        """The relative difference of a count; none without an earlier one."""
        return count / self.instructions[name] - 1 if name in self.instructions else None

    def change(self, name, count):
        difference = self.difference(name, count)
        return "-" if difference is None else f"{difference:+.1%}{'!' if abs(difference) > TOLERANCE else ''}"


def print_row(name, count, before, change, description):
    print(f"{name:<16} {count:>12} {before:>10} {change:>8}  {description}", flush=True)


def compare(baseline, build, counts):
    """Lists the rows that differ by more than the tolerance; whether all can be compared, and none is above it."""
    if not baseline.instructions:
        return True
    is_comparable = True
    for name, earlier in asdict(baseline.build).items():
        now = asdict(build)[name]
        if now != earlier:
            print(f"not comparable: the {name} is {now}, that of the baseline is {earlier}", file=sys.stderr)
            is_comparable = False
    above, below = [], []
    for name, count in counts.items():
        difference = baseline.difference(name, count) or 0
        if abs(difference) > TOLERANCE:
            (above if difference > 0 else below).append(f"{name} {difference:+.1%}")
    for rows, side in ((above, "above"), (below, "below")):
        if rows:
            print(f"more than {TOLERANCE:.0%} {side} the baseline: {', '.join(rows)}")
    if not above and not below:
        print(f"within {TOLERANCE:.0%} of the baseline: all")
    return is_comparable and not above
