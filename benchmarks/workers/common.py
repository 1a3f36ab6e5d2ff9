"""What all workers share: their command line, the meter, and the line they print.

A worker runs inside its library's own environment, from the folder `benchmarks`:

    python -m workers.sbx updates --algo sac --hidden 256 --seconds 10

and prints one line of JSON: the work done, and the wall-clock and CPU seconds it took. CPU
seconds count all threads. Starting up, compiling and warming up are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable

OBS, ACTION, BATCH = 17, 6, 256  # the sizes of HalfCheetah
CAPACITY = 10_000  # rows of the on-device replay: rejax's own choice for Pendulum
SKILLS, DESCRIPTOR = 5, 2  # of DADS: one-hot skills that differ in two numbers
WARM_UP = BATCH  # steps before the first update
MEMBER_ROWS = 20_000  # rows of the replay of each member of a population


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    works = ["updates", "steps", "ondevice", "first", "matmul", "blas", "population", "cores"]
    parser.add_argument("work", choices=works)
    parser.add_argument("--algo", choices=["sac", "td3", "dads", "discrete-sac"], default="sac")
    parser.add_argument("--variant", choices=["crossq", "tqc", "droq"], help="of `updates` of sac")
    parser.add_argument("--preset", help="of Thespis, for `updates`")
    parser.add_argument("--hidden", type=int, default=256, help="width of the two hidden layers")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--env", default="Pendulum-v1", help="of `steps` and `first`")
    parser.add_argument("--envs", type=int, default=1, help="of `ondevice`")
    parser.add_argument("--members", type=int, default=8, help="of `population` and `cores`")
    parser.add_argument("--devices", type=int, default=1, help="of `cores`")
    return parser.parse_args()


class Meter:
    """Says whether to go on, and measures what is done after the first `skip` units."""

    def __init__(self, seconds: float, skip: int = 0):
        self.seconds, self.skip, self.began = seconds, skip, None

    def more(self, count: int) -> bool:
        """False once `seconds` have passed since `skip` units were done."""
        now = (count, time.perf_counter(), time.process_time())
        if self.began is None:
            if count >= self.skip:
                self.began = now
            return True
        self.spent = [b - a for a, b in zip(self.began, now, strict=True)]
        return self.spent[1] < self.seconds


def measure(seconds: float, run: Callable[[], int]) -> Meter:
    """Call `run`, which says how much it has done, again and again; two calls to warm up."""
    run(), run()
    meter, count = Meter(seconds), 0
    while meter.more(count):
        count += run()
    return meter


def report(unit: str, meter: Meter, **more) -> None:
    count, wall, cpu = meter.spent
    print(json.dumps({unit: count, "wall_seconds": wall, "cpu_seconds": cpu, **more}))


def at_once(members: int) -> int:
    """Updates of each member in one call of a population: enough to hide what a call costs."""
    return max(2, 64 // members)


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def report_first() -> None:
    """How long ago this process was started, by the kernel's clock (in ticks of 10 ms)."""
    with open("/proc/self/stat") as file:
        started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    wall = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    print(json.dumps({"first_update_s": wall, "cpu_seconds": time.process_time()}))
