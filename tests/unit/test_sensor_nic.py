"""Interface rates over recorded trees of /sys, over this machine and in a network namespace of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest
from ddltop_agents.node.nic import MAX_INTERFACES, NicSensor
from ddltop_agents.node.sensors import Sensors
from hypothesis import given
from hypothesis import strategies as st


def interface(
    root: Path, name: str, *, rx: int = 0, tx: int = 0, speed: str | None = "10000", ifindex: int = 1
) -> Path:
    folder = root / "class" / "net" / name
    (folder / "statistics").mkdir(parents=True, exist_ok=True)
    for counter, value in (("rx_bytes", rx), ("tx_bytes", tx), ("rx_errors", 1), ("tx_errors", 0), ("rx_dropped", 2)):
        (folder / "statistics" / counter).write_text(f"{value}\n")
    (folder / "operstate").write_text("up\n")
    (folder / "ifindex").write_text(f"{ifindex}\n")
    if speed is not None:
        (folder / "speed").write_text(f"{speed}\n")
    return folder


def test_rates_are_differences_over_time(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", rx=1000, tx=5000)
    sensor = NicSensor(tmp_path)
    (first,) = sensor.sample(10.0)
    assert (first.rx_bytes_per_s, first.tx_bytes_per_s) == (None, None)
    interface(tmp_path, "eth0", rx=3000, tx=5500)
    (second,) = sensor.sample(12.0)
    assert (second.rx_bytes_per_s, second.tx_bytes_per_s) == (1000.0, 250.0)
    assert second.speed_bytes_per_s == 1.25e9
    assert (second.rx_errors, second.rx_dropped, second.tx_dropped) == (1, 2, None)
    sensor.close()


@given(
    readings=st.lists(
        st.tuples(st.floats(0.01, 100), st.integers(0, 2**64 - 1)), min_size=2, max_size=8
    )  # seconds since the reading before, counter
)
def test_a_rate_times_its_time_is_the_bytes_and_never_negative(
    tmp_path_factory: pytest.TempPathFactory, readings: list[tuple[float, int]]
) -> None:
    root = tmp_path_factory.mktemp("sys")
    sensor, now_s, before = NicSensor(root), 0.0, None
    for elapsed_s, counter in readings:
        interface(root, "eth0", rx=counter)
        now_s += elapsed_s
        rate = sensor.sample(now_s)[0].rx_bytes_per_s
        if before is None or counter < before:
            assert rate is None
        else:
            assert rate is not None
            assert rate * elapsed_s == pytest.approx(counter - before)
        before = counter
    sensor.close()


def test_a_counter_that_goes_back_has_no_rate_until_the_sample_after(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", rx=2**63)
    sensor = NicSensor(tmp_path)
    sensor.sample(0.0)
    interface(tmp_path, "eth0", rx=100)
    (after,) = sensor.sample(1.0)
    assert after.rx_bytes_per_s is None
    interface(tmp_path, "eth0", rx=300)
    (later,) = sensor.sample(2.0)
    assert later.rx_bytes_per_s == 200.0
    sensor.close()


def test_no_time_between_two_samples_is_no_rate(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", rx=1)
    sensor = NicSensor(tmp_path)
    sensor.sample(3.0)
    assert sensor.sample(3.0)[0].rx_bytes_per_s is None
    sensor.close()


@pytest.mark.parametrize("speed", ["-1", "0", "", "unknown", None])
def test_a_speed_that_the_driver_does_not_give_is_unknown(tmp_path: Path, speed: str | None) -> None:
    interface(tmp_path, "veth0", speed=speed)
    sensor = NicSensor(tmp_path)
    assert sensor.sample(0.0)[0].speed_bytes_per_s is None
    sensor.close()


def test_interfaces_come_and_go_and_no_descriptor_is_left(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    sensor = NicSensor(tmp_path)
    assert sensor.sample(0.0) == ()
    interface(tmp_path, "eth0", rx=1)
    interface(tmp_path, "eth1", rx=1)
    assert [nic.name for nic in sensor.sample(1.0)] == ["eth0", "eth1"]
    shutil.rmtree(tmp_path / "class" / "net" / "eth0")
    assert [nic.name for nic in sensor.sample(2.0)] == ["eth1"]
    interface(tmp_path, "eth0", rx=10**9)
    assert sensor.sample(3.0)[0].rx_bytes_per_s is None  # another interface of that name
    sensor.close()
    assert psutil.Process().num_fds() == before


def test_unreadable_counters_are_unmeasured_and_read_again(tmp_path: Path) -> None:
    folder = interface(tmp_path, "eth0", tx=1)
    (folder / "statistics" / "rx_bytes").write_text("no number")
    (folder / "operstate").unlink()
    sensor = NicSensor(tmp_path)
    sensor.sample(0.0)
    (sample,) = sensor.sample(1.0)
    assert (sample.rx_bytes_per_s, sample.tx_bytes_per_s) == (None, 0.0)
    assert sample.operstate == "unknown"
    (folder / "statistics" / "rx_bytes").write_text("5")
    sensor.sample(2.0)
    assert sensor.sample(3.0)[0].rx_bytes_per_s == 0.0
    sensor.close()


def test_a_name_cannot_steer_the_terminal_or_break_the_wire(tmp_path: Path) -> None:
    interface(tmp_path, "e\033[2Jth0")
    interface(tmp_path, os.fsdecode(b"ib\xff0"))
    sensor = NicSensor(tmp_path)
    names = [nic.name for nic in sensor.sample(0.0)]
    assert names == ["e[2Jth0", "ib0"]
    assert msgspec.msgpack.encode(names)
    sensor.close()


def test_a_file_among_the_interfaces_is_none(tmp_path: Path) -> None:
    interface(tmp_path, "bond0")
    (tmp_path / "class" / "net" / "bonding_masters").write_text("bond0\n")
    sensor = NicSensor(tmp_path)
    assert [nic.name for nic in sensor.sample(0.0)] == ["bond0"]
    sensor.close()


def test_a_host_with_very_many_containers_still_shows_its_own_ports_with_bounded_descriptors(tmp_path: Path) -> None:
    for number in range(2 * MAX_INTERFACES):
        interface(tmp_path, f"cali{number:04}", ifindex=100 + number)
    interface(tmp_path, "lo", ifindex=1)
    interface(tmp_path, "enp1s0", ifindex=2)
    before = psutil.Process().num_fds()
    sensor = NicSensor(tmp_path)
    names = [nic.name for nic in sensor.sample(0.0)]
    assert len(names) == MAX_INTERFACES
    assert {"lo", "enp1s0"} < set(names)
    assert psutil.Process().num_fds() - before <= 6 * MAX_INTERFACES
    sensor.close()


def test_this_machine_is_read_as_psutil_reads_it() -> None:
    sensor = NicSensor()
    sensor.sample(0.0)
    seen = {nic.name: nic for nic in sensor.sample(1.0)}
    sensor.close()
    counters = psutil.net_io_counters(pernic=True)
    assert seen.keys() == counters.keys()
    assert "lo" in seen
    for name, nic in seen.items():
        assert nic.rx_bytes_per_s is not None
        assert nic.rx_errors == counters[name].errin


def test_all_sensors_together_make_a_sample_of_the_node() -> None:
    sensors = Sensors()
    sensors.sample({0: os.getpid()})
    sample = sensors.sample({0: os.getpid()})
    assert "lo" in [nic.name for nic in sample.nics]
    assert sample.host.rank_rss_bytes.keys() == {0}
    assert sample.host.memory_total_bytes
    assert sample.gpus or sample.gpu_status.startswith("no GPU")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sample), type=type(sample)) == sample


# Talk over loopback without any tool, a datagram socket to itself; then take an interface away and make it anew.
_IN_NAMESPACE = """
import os, socket, subprocess
from ddltop_agents.node.nic import NicSensor
sensor = NicSensor()
before = {nic.name: nic for nic in sensor.sample(0.0)}
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
for _ in range(50):
    s.sendto(b"x" * 1000, s.getsockname())
    s.recv(2000)
for nic in sensor.sample(2.0):
    print(nic.name, nic.tx_bytes_per_s)
make = "ip link add dt0 type veth peer name dt1"
subprocess.run(f"ip link del dt0 && {make}", shell=True, check=True)
for now_s in (3.0, 4.0, 5.0):
    print("anew", *(str(nic.tx_bytes_per_s) for nic in sensor.sample(now_s) if nic.name == "dt0"))
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip(8)")
def test_a_network_namespace_shows_its_own_interfaces_and_their_traffic() -> None:
    name = f"ddltop{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "-n", name, "link", "add", "dt0", "type", "veth", "peer", "name", "dt1"], check=True)
        words = ["ip", "netns", "exec", name, sys.executable, "-c", _IN_NAMESPACE]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    rates = dict(line for line in lines if line[0] != "anew")
    assert rates.keys() == {"lo", "dt0", "dt1"}
    # 50 datagrams in 2 s: 1000 bytes, 8 of UDP, 20 of IP, and 14 of Ethernet for a kernel that counts them.
    assert 50 * 1028 / 2 <= float(rates["lo"]) <= 50 * 1042 / 2
    assert float(rates["dt0"]) == 0.0
    assert [line[1] for line in lines if line[0] == "anew"] == ["None", "None", "0.0"]
