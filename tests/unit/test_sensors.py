"""Sensors over recorded trees of /sys, over this machine, and over the real NVML binding with a stub library."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from ddltop_agents.node.host import HostSensor
from ddltop_agents.node.nic import NicSensor
from ddltop_agents.node.sensors import Sensors

STUB = Path(__file__).with_name("fake_nvml") / "nvml.c"


def interface(root: Path, name: str, *, rx: int = 0, tx: int = 0, speed: str | None = "10000") -> None:
    folder = root / "class" / "net" / name
    (folder / "statistics").mkdir(parents=True, exist_ok=True)
    for counter, value in (("rx_bytes", rx), ("tx_bytes", tx), ("rx_errors", 1), ("tx_errors", 0), ("rx_dropped", 2)):
        (folder / "statistics" / counter).write_text(f"{value}\n")
    (folder / "operstate").write_text("up\n")
    if speed is not None:
        (folder / "speed").write_text(f"{speed}\n")


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


def test_a_counter_that_goes_back_has_no_rate(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("speed", ["-1", "", "unknown", None])
def test_a_speed_that_the_driver_does_not_give_is_unknown(tmp_path: Path, speed: str | None) -> None:
    interface(tmp_path, "veth0", speed=speed)
    assert NicSensor(tmp_path).sample(0.0)[0].speed_bytes_per_s is None


def test_interfaces_come_and_go_and_no_descriptor_is_left(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    sensor = NicSensor(tmp_path)
    assert sensor.sample(0.0) == ()
    interface(tmp_path, "eth0", rx=1)
    interface(tmp_path, "eth1", rx=1)
    assert [nic.name for nic in sensor.sample(1.0)] == ["eth0", "eth1"]
    shutil.rmtree(tmp_path / "class" / "net" / "eth0")
    assert [nic.name for nic in sensor.sample(2.0)] == ["eth1"]
    sensor.close()
    assert psutil.Process().num_fds() == before


def test_unreadable_counters_are_unmeasured(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    (tmp_path / "class" / "net" / "eth0" / "statistics" / "rx_bytes").write_text("no number")
    (tmp_path / "class" / "net" / "eth0" / "operstate").unlink()
    sensor = NicSensor(tmp_path)
    sensor.sample(0.0)
    (sample,) = sensor.sample(1.0)
    assert sample.rx_bytes_per_s is None
    assert sample.operstate == "unknown"
    sensor.close()


def test_a_busy_process_of_this_machine_is_seen_busy() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        sensor = HostSensor()
        sensor.sample({3: process.pid})
        while psutil.Process(process.pid).cpu_times().user < 0.3:
            pass
        sample = sensor.sample({3: process.pid})
        process.kill()
    assert sample.rank_cpu_ratio[3] > 0.2
    assert sample.rank_rss_bytes[3] > 2**20
    assert sample.cpu_ratio is not None
    assert 0 < sample.cpu_ratio <= 1
    assert HostSensor().sample({3: process.pid}).rank_rss_bytes == {}


def test_this_machine_has_a_loopback_interface() -> None:
    sample = Sensors().sample({0: os.getpid()})
    assert "lo" in [nic.name for nic in sample.nics]
    assert sample.host.memory_total_bytes


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and ip(8)")
def test_a_network_namespace_shows_its_own_interfaces_and_their_traffic() -> None:
    name = f"ddltop{os.getpid()}"
    code = (
        "import time\n"
        "from ddltop_agents.node.nic import NicSensor\n"
        "sensor = NicSensor(); sensor.sample(time.monotonic())\n"
        f"{_TALK}\n"
        "for nic in sensor.sample(time.monotonic()): print(nic.name, nic.tx_bytes_per_s)\n"
    )
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("network namespaces are not allowed here")
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "-n", name, "link", "add", "dt0", "type", "veth", "peer", "name", "dt1"], check=True)
        words = ["ip", "netns", "exec", name, sys.executable, "-c", code]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    rates = dict(line.split() for line in done.stdout.splitlines())
    assert rates.keys() == {"lo", "dt0", "dt1"}
    assert float(rates["lo"]) > 1000
    assert float(rates["dt0"]) == 0.0


# Talk over loopback without any tool: a datagram socket to itself.
_TALK = (
    "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); "
    "[s.sendto(b'x' * 1000, s.getsockname()) for _ in range(50)]; s.close()"
)


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stub libnvidia-ml.so.1 that reads its answers from the file $FAKE_NVML."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    words = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(STUB)]
    subprocess.run(words, check=True, timeout=60)
    return folder


GPU_CODE = """
import json
import msgspec
from ddltop_agents.node.gpu import GpuSensor
gpus, status = GpuSensor().sample()
print(json.dumps({"status": status, "gpus": msgspec.to_builtins(gpus)}))
"""


def sample_gpus(nvml: Path, control: Path, answers: str) -> dict[str, object]:
    import json

    control.write_text(answers)
    environ = dict(os.environ, LD_LIBRARY_PATH=str(nvml), FAKE_NVML=str(control))
    done = subprocess.run(
        [sys.executable, "-c", GPU_CODE], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_real_binding_reads_a_gpu(nvml: Path, tmp_path: Path) -> None:
    answers = (
        "count 2\nutil 97\npower 310000\nlimit 400000\ntemp 66\nsm 1965\nsm_max 1980\nreasons 68\nused 44000000000\n"
    )
    found = sample_gpus(nvml, tmp_path / "control", answers)
    assert found["status"] == "ok"
    gpus = found["gpus"]
    assert isinstance(gpus, list)
    assert len(gpus) == 2
    gpu = gpus[1]
    assert gpu["uuid"] == "GPU-fake-1"
    assert (gpu["utilization_ratio"], gpu["power_w"], gpu["power_limit_w"]) == (0.97, 310.0, 400.0)
    assert (gpu["temperature_c"], gpu["sm_clock_mhz"], gpu["sm_clock_max_mhz"]) == (66.0, 1965.0, 1980.0)
    assert gpu["throttle_reasons"] == ["power cap", "hardware thermal"]
    assert gpu["memory_used_bytes"] == 44_000_000_000


def test_what_a_device_does_not_support_is_unmeasured_and_the_rest_goes_on(nvml: Path, tmp_path: Path) -> None:
    found = sample_gpus(nvml, tmp_path / "control", "count 1\nutil 50\nerr.power 3\nerr.temp 4\nsm 1000\n")
    gpus = found["gpus"]
    assert isinstance(gpus, list)
    assert (gpus[0]["power_w"], gpus[0]["temperature_c"]) == (None, None)
    assert (gpus[0]["utilization_ratio"], gpus[0]["sm_clock_mhz"]) == (0.5, 1000.0)


def test_a_driver_that_does_not_start_is_no_gpu(nvml: Path, tmp_path: Path) -> None:
    assert sample_gpus(nvml, tmp_path / "control", "err.init 9\n") == {"status": "no GPU", "gpus": []}


def test_no_library_is_no_gpu_without_a_word() -> None:
    done = subprocess.run([sys.executable, "-c", GPU_CODE], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
