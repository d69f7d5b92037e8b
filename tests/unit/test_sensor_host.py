"""CPU and memory over recorded trees of /proc, and over this machine with psutil as the second opinion."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from ddltop_agents.node.host import HostSensor

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def write_cpu(root: Path, *, user: int, idle: int, iowait: int = 0, steal: int = 0, guest: int = 0) -> None:
    line = f"{user} 0 0 {idle} {iowait} 0 0 {steal} {guest} 0"
    (root / "stat").write_text(f"cpu  {line}\ncpu0 {line}\ncpu1 {line}\nintr 12345 0\nbtime 1700000000\n")


def write_process(
    root: Path, pid: int, *, utime: int = 0, stime: int = 0, rss: int = 0, state: str = "R", started: int = 1
) -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    between = " ".join(str(n) for n in range(4, 14))
    after = f"77 78 20 0 3 0 {started} 999999 {rss} 18446744073709551615 1 1"
    (root / str(pid) / "stat").write_text(f"{pid} (pt (main) thread) {state} {between} {utime} {stime} {after}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    write_cpu(tmp_path, user=0, idle=0)
    (tmp_path / "loadavg").write_text("1.25 0.50 0.10 2/345 6789\n")
    (tmp_path / "meminfo").write_text(
        "MemTotal:       1000 kB\nMemFree: 100 kB\nMemAvailable:    400 kB\nHugePages_Total: 7\n"
    )
    return tmp_path


def test_cpu_ratio_is_busy_ticks_over_all_ticks_since_the_sample_before(proc: Path) -> None:
    write_cpu(proc, user=1000, idle=1000, iowait=50)
    sensor = HostSensor(proc)
    assert sensor.sample(0.0, {}).cpu_ratio is None
    write_cpu(proc, user=1030, idle=1050, iowait=60, steal=10, guest=30)
    # Busy: 30 user and 10 stolen; guest time is a part of user time. Not busy: 50 idle and 10 waiting for a disk.
    assert sensor.sample(1.0, {}).cpu_ratio == pytest.approx(0.4)


def test_a_cpu_count_that_stands_still_or_goes_back_has_no_ratio(proc: Path) -> None:
    write_cpu(proc, user=100, idle=100)
    sensor = HostSensor(proc)
    sensor.sample(0.0, {})
    assert sensor.sample(1.0, {}).cpu_ratio is None
    write_cpu(proc, user=10, idle=10)
    assert sensor.sample(2.0, {}).cpu_ratio is None


def test_iowait_that_goes_back_leaves_the_ratio_within_0_and_1(proc: Path) -> None:
    write_cpu(proc, user=100, idle=100, iowait=100)
    sensor = HostSensor(proc)
    sensor.sample(0.0, {})
    write_cpu(proc, user=200, idle=100, iowait=90)
    assert sensor.sample(1.0, {}).cpu_ratio == 1.0


def test_load_memory_and_cpus_are_read(proc: Path) -> None:
    sample = HostSensor(proc).sample(0.0, {})
    assert (sample.num_cpus, sample.load_1m) == (2, 1.25)
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (1000 * 1024, 600 * 1024)


def test_without_proc_everything_is_unmeasured(tmp_path: Path) -> None:
    sample = HostSensor(tmp_path / "nothing").sample(0.0, {0: os.getpid()})
    assert sample.num_cpus >= 1
    assert (sample.cpu_ratio, sample.load_1m, sample.memory_used_bytes, sample.memory_total_bytes) == (None,) * 4
    assert (sample.rank_cpu_ratio, sample.rank_rss_bytes) == ({}, {})


def test_damaged_files_are_unmeasured(proc: Path) -> None:
    for name in ("stat", "loadavg", "meminfo"):
        (proc / name).write_text("cpu  x y\n")
    write_process(proc, 10)
    (proc / "10" / "stat").write_text("10 (python) R 1\n")
    sample = HostSensor(proc).sample(0.0, {0: 10})
    assert (sample.cpu_ratio, sample.load_1m, sample.memory_total_bytes) == (None, None, None)
    assert sample.rank_rss_bytes == {}


def test_a_rank_keeps_as_many_cpus_busy_as_its_ticks_say(proc: Path) -> None:
    write_process(proc, 10, utime=500, stime=70, rss=25)
    sensor = HostSensor(proc)
    first = sensor.sample(100.0, {3: 10})
    assert (first.rank_cpu_ratio, first.rank_rss_bytes) == ({}, {3: 25 * PAGE})
    write_process(proc, 10, utime=500 + 5 * TICKS, stime=70 + TICKS, rss=30)
    second = sensor.sample(104.0, {3: 10})
    assert second.rank_cpu_ratio == {3: pytest.approx(1.5)}
    assert second.rank_rss_bytes == {3: 30 * PAGE}


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_rank_that_has_died_is_left_out(proc: Path, state: str) -> None:
    write_process(proc, 10, rss=1)
    write_process(proc, 11, rss=2)
    sensor = HostSensor(proc)
    sensor.sample(0.0, {0: 10, 1: 11, 2: 12})
    write_process(proc, 11, state=state)
    sample = sensor.sample(1.0, {0: 10, 1: 11, 2: 12})
    assert sample.rank_cpu_ratio.keys() == sample.rank_rss_bytes.keys() == {0}


def test_a_process_number_used_again_is_another_process(proc: Path) -> None:
    write_process(proc, 10, utime=90 * TICKS, started=1)
    sensor = HostSensor(proc)
    sensor.sample(0.0, {0: 10})
    write_process(proc, 10, utime=95 * TICKS, started=2)
    assert sensor.sample(1.0, {0: 10}).rank_cpu_ratio == {}
    write_process(proc, 10, utime=96 * TICKS, started=2)
    assert sensor.sample(2.0, {0: 10}).rank_cpu_ratio == {0: pytest.approx(1.0)}


def test_no_time_between_two_samples_is_no_ratio(proc: Path) -> None:
    write_process(proc, 10)
    sensor = HostSensor(proc)
    sensor.sample(5.0, {0: 10})
    assert sensor.sample(5.0, {0: 10}).rank_cpu_ratio == {}


def test_this_machine_is_read_as_psutil_reads_it() -> None:
    sample = HostSensor().sample(0.0, {0: os.getpid()})
    memory, own = psutil.virtual_memory(), psutil.Process()
    assert sample.num_cpus == psutil.cpu_count()
    assert sample.memory_total_bytes == memory.total
    assert sample.memory_used_bytes == pytest.approx(memory.total - memory.available, abs=0.2 * memory.total)
    assert sample.rank_rss_bytes[0] == pytest.approx(own.memory_info().rss, rel=0.2)


def test_a_busy_process_of_this_machine_has_the_cpu_time_that_psutil_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        watched = psutil.Process(process.pid)
        sensor = HostSensor()
        before, began = sum(watched.cpu_times()[:2]), time.monotonic()
        sensor.sample(began, {3: process.pid})
        while sum(watched.cpu_times()[:2]) < before + 0.3:
            pass
        ended = time.monotonic()
        sample = sensor.sample(ended, {3: process.pid})
        process.kill()
    assert sample.rank_cpu_ratio[3] * (ended - began) == pytest.approx(0.3, abs=0.1)
    assert sample.cpu_ratio is not None
    assert 0 < sample.cpu_ratio <= 1
    assert HostSensor().sample(0.0, {3: process.pid}).rank_rss_bytes == {}
