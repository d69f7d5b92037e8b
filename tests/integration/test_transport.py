"""Real sockets: TCP speaks CURVE and admits only the run's keys; the simulated cluster uses the real protocol."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from ddltop.collector.service import Launcher
from ddltop.collector.snapshot import Snapshot
from ddltop.errors import UsageError
from ddltop.sources.source import SourceMode
from ddltop.wire.codec import encode
from ddltop.wire.endpoints import private_directory
from ddltop.wire.keyfile import Keys, read_keys, write_keys
from ddltop.wire.messages import SnapshotRequest
from tests.integration.conftest import Lab

Wait = Callable[[Callable[[], Any], float], Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(endpoint: str, keys: Keys | None, timeout_ms: int) -> bool:
    """Ask a collector for a snapshot; tell whether it answers."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    if keys is not None:
        dealer.curve_serverkey = keys.server_public.encode()
        dealer.curve_publickey = keys.client_public.encode()
        dealer.curve_secretkey = keys.client_secret.encode()
    dealer.connect(endpoint)
    dealer.send(encode(SnapshotRequest()))
    is_answered = bool(dealer.poll(timeout_ms))
    dealer.close()
    context.term()
    return is_answered


def test_over_tcp_only_the_keys_of_the_run_are_admitted(lab: Lab, wait_for: Wait) -> None:
    run_dir = lab.home / "run"
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    words = ("collect", "--run-dir", str(run_dir), "--bind", endpoint)
    process = lab.start(lab.command(*words))
    try:
        wait_for((run_dir / "collector.sock").exists, 20)
        keys = read_keys(run_dir / "curve.json")
        assert ask(endpoint, keys, 10_000)
        public, secret = (key.decode() for key in zmq.curve_keypair())
        stranger = Keys(server_public=keys.server_public, server_secret="", client_public=public, client_secret=secret)
        assert not ask(endpoint, stranger, 1500)
        assert not ask(endpoint, None, 1500)
        assert ask(endpoint, keys, 10_000)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def test_ranks_reach_a_collector_over_tcp_through_their_agent(lab: Lab, wait_for: Wait) -> None:
    """As on a second node: the agent is told the collector's endpoint and has a copy of the keys."""
    head, node = lab.home / "head", lab.home / "node"
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    head_run, node_run = head / "job-1", node / "job-1"
    for folder in (head, node):
        folder.mkdir()
    private_directory(node_run)
    collector = lab.start(lab.command("collect", "--run-dir", str(head_run), "--bind", endpoint))
    try:
        wait_for((head_run / "collector.sock").exists, 20)
        key_file = node_run / "keys.json"
        write_keys(key_file, read_keys(head_run / "curve.json"))
        shim = str(Path(__file__).resolve().parents[2] / "agents" / "shim")
        environ = dict(lab.environ, DDLTOP_RUN_DIR=str(node_run), PYTHONPATH=shim)
        environ |= {"DDLTOP_COLLECTOR": endpoint, "DDLTOP_KEY_FILE": str(key_file)}
        node_lab = Lab(home=lab.home, environ=environ)
        training = node_lab.start(lab.torchrun("--model", "tiny", "--duration", "6"))
        seen = lab.ddltop("attach", endpoint, "--key-file", str(key_file), "--json", timeout=60)
        assert json.loads(seen.stdout)["run"]["state"] == "live"
        _output, errors = training.communicate(timeout=60)
        assert training.returncode == 0, errors
        collector.wait(30)  # it ends by itself: all ranks are gone and their agent has delivered
        report = lab.report()
        assert report["run"]["steps"] > 300
        assert report["quality"]["lost_batches"] == 0
    finally:
        if collector.poll() is None:
            collector.terminate()
        collector.communicate(timeout=20)


def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    write_keys(path, Keys(server_public="a", server_secret="b", client_public="c", client_secret="d"))
    assert path.stat().st_mode & 0o777 == 0o600
    read_keys(path)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="others may read"):
        read_keys(path)
    with pytest.raises(UsageError):
        read_keys(tmp_path / "none")


def test_the_simulated_cluster_shows_its_straggler_on_the_card(lab: Lab) -> None:
    done = lab.ddltop("demo", "--simulate", "--duration", "14s", "--fault", "backward-delay:rank=5,ms=60", timeout=90)
    assert done.returncode == 0, done.stderr
    assert "16 ranks, 4 nodes" in done.stdout
    assert "backward-straggler  r5@node1" in done.stdout
    report = lab.report()
    assert report["run"]["world_size"] == 16
    assert len(report["nodes"]) == 4
    # 102 MB over 25 Gb/s, ring of 16: 97.5 MiB x 2 x 15/16 / 3.1 GB/s; the fit must find the link again.
    speed = report["speedup"]
    assert speed["network_b"] == pytest.approx(2 * 15 / 16 / 3.1e9, rel=0.15)


def test_the_demo_without_a_terminal_prints_the_card_of_real_ranks(lab: Lab) -> None:
    done = lab.ddltop("demo", "--duration", "8s", timeout=120)
    assert done.returncode == 0, done.stderr
    assert "2 ranks, 1 node" in done.stdout
    for rank in (0, 1):
        assert re.search(rf"^r{rank}@\S+ +\d", done.stdout, re.MULTILINE)
    for name in ("t_f", "t_b", "t_c", "t_u"):
        value = re.search(rf"\b{name} ([\d.]+)", done.stdout)
        assert value, name
        assert float(value.group(1)) > 0
    assert re.search(r"measured \d+\.\d+x +predicted \d+\.\d+x", done.stdout)


def test_a_printing_command_asks_now_and_then_and_keeps_no_collector_busy() -> None:
    from ddltop.cli.viewing import await_steps
    from tests.unit.builders import make_snapshot, without_figures

    class Eager:
        """A source that always answers at once, as a collector does."""

        mode = SourceMode.LIVE
        num_polls = 0

        def poll(self, timeout_s: float) -> Snapshot | None:
            self.num_polls += 1
            return without_figures(make_snapshot(2))

        def close(self) -> None:
            pass

    source = Eager()
    await_steps(source, 1.0)
    assert 1 <= source.num_polls <= 6


def test_a_launcher_that_has_ended_is_gone_and_none_is_not() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    launcher = Launcher(process.pid)
    assert launcher.is_alive()
    assert not launcher.is_gone()
    process.communicate(b"\n", timeout=30)
    assert launcher.is_gone()
    assert not Launcher(None).is_alive()
    assert not Launcher(None).is_gone()
