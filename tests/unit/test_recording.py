"""A recording keeps the frames exactly, survives a kill, and a hostile one does no harm."""

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ddltop.errors import NoRunError, RecordingError
from ddltop.recording.frames import MAX_BLOCK_BYTES, pack_block, unpack_block
from ddltop.recording.names import find_recording, recording_name
from ddltop.recording.reader import Recording
from ddltop.recording.recorder import Recorder
from ddltop.recording.schema import APPLICATION_ID, SCHEMA_VERSION
from ddltop.recording.worker import RecorderThread
from tests.unit.builders import Work, make_snapshot, make_window

Frames = st.lists(st.tuples(st.floats(0, 2e9), st.binary(max_size=300)), min_size=1, max_size=30)


@given(Frames)
def test_a_block_gives_back_what_it_took(frames: list[tuple[float, bytes]]) -> None:
    payload, _ = pack_block(frames)
    assert list(unpack_block(payload)) == frames


@settings(max_examples=20, deadline=None)
@given(Frames)
def test_a_recording_gives_back_the_frames_in_order(frames: list[tuple[float, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.ddltop"
        recorder = Recorder(path)
        for i, (at, frame) in enumerate(frames):
            recorder.write_frame(at, frame)
            if i % 7 == 0:
                recorder.commit()
        recorder.close()
        recording = Recording(path)
        assert list(recording.frames()) == frames
        recording.close()


def write_sample(path: Path) -> None:
    recorder = Recorder(path)
    for i in range(50):
        recorder.write_frame(float(i), os.urandom(200))
    recorder.write_steps(make_window([Work(), Work()], num_steps=5))
    recorder.write_snapshot(make_snapshot(2, late_rank=1))
    recorder.close()


def test_its_tables_are_plain_sql(tmp_path: Path) -> None:
    path = tmp_path / "a.ddltop"
    write_sample(path)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*), sum(t_f) FROM steps").fetchone() == (10, pytest.approx(0.1))
        assert database.execute("SELECT rank, node FROM ranks ORDER BY rank").fetchall() == [(0, "node0"), (1, "node0")]
        assert database.execute("SELECT code FROM findings").fetchone() == ("backward-straggler",)
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    recording = Recording(path)
    assert (recording.run_id, recording.started_at) == ("train-1", 999_000.0)
    recording.close()


def test_it_is_for_its_owner_alone_and_never_written_through_a_link(tmp_path: Path) -> None:
    path = tmp_path / "a.ddltop"
    Recorder(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]  # no journal left behind
    victim = tmp_path / "victim"
    (tmp_path / "link.ddltop").symlink_to(victim)
    with pytest.raises(RecordingError):
        Recorder(tmp_path / "link.ddltop")
    with pytest.raises(RecordingError):
        Recorder(path)
    assert not victim.exists()


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.ddltop"
    recorder = Recorder(path)
    recorder.write_frame(1.0, b"first")
    recorder.commit()
    recorder.write_frame(2.0, b"second")
    recording = Recording(path)
    assert list(recording.frames()) == [(1.0, b"first")]
    recorder.commit()
    assert [frame for _, frame in recording.frames()] == [b"first", b"second"]
    recording.close()
    recorder.close()


WRITER = """
import sys
from pathlib import Path
from ddltop.recording.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]))
for i in range(10**9):
    recorder.write_frame(float(i), i.to_bytes(8, "little") * 40)
    if i % 5 == 4:
        recorder.commit()
        print(i, flush=True)
"""


@pytest.mark.parametrize("num_commits", [1, 3, 10, 40])
def test_a_kill_loses_nothing_that_was_committed(tmp_path: Path, num_commits: int) -> None:
    path = tmp_path / "a.ddltop"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        committed = [int(process.stdout.readline()) for _ in range(num_commits)][-1]
        os.kill(process.pid, signal.SIGKILL)
    recording = Recording(path)
    frames = [int.from_bytes(frame[:8], "little") for _, frame in recording.frames()]
    recording.close()
    assert frames == list(range(len(frames)))
    assert len(frames) > committed


def test_any_damage_is_an_error_or_fewer_frames_and_never_worse(tmp_path: Path) -> None:
    path = tmp_path / "a.ddltop"
    write_sample(path)
    whole = path.read_bytes()
    source = random.Random(3)
    for i in range(150):
        damaged = bytearray(whole)
        if i % 3 == 0:
            damaged = damaged[: source.randrange(len(damaged))]
        else:
            for _ in range(source.randint(1, 20)):
                damaged[source.randrange(len(damaged))] = source.randrange(256)
        path.write_bytes(damaged)
        try:
            recording = Recording(path)
            assert sum(1 for _ in recording.frames()) <= 50
            recording.close()
        except RecordingError as error:
            assert error.hint


def hostile(path: Path, payload: object) -> Path:
    Recorder(path).close()
    with sqlite3.connect(path) as database:
        database.execute(
            "INSERT INTO frames (first_at, last_at, num_frames, num_bytes, payload) VALUES (0, 0, 1, 1, ?)", (payload,)
        )
    return path


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no zstd",
        "text",
        17,
        zstandard.ZstdCompressor().compress(b"\0" * (MAX_BLOCK_BYTES + 1)),
        zstandard.ZstdCompressor(write_content_size=False).compress(b"\0" * 10**6),
        zstandard.ZstdCompressor().compress(b"\0" * 13),
        zstandard.ZstdCompressor().compress(b"\0" * 8 + b"\xff\xff\xff\xff"),
    ],
)
def test_a_hostile_block_is_an_error_that_says_so(tmp_path: Path, payload: object) -> None:
    recording = Recording(hostile(tmp_path / "a.ddltop", payload))
    with pytest.raises(RecordingError):
        list(recording.frames())
    recording.close()


def test_other_files_are_told_from_recordings(tmp_path: Path) -> None:
    (tmp_path / "text.ddltop").write_text("hello")
    with pytest.raises(RecordingError):
        Recording(tmp_path / "text.ddltop")
    with sqlite3.connect(tmp_path / "other.ddltop") as database:
        database.execute("CREATE TABLE t (x)")
    with pytest.raises(RecordingError, match="no recording"):
        Recording(tmp_path / "other.ddltop")
    with sqlite3.connect(tmp_path / "newer.ddltop") as database:
        database.execute(f"PRAGMA application_id={APPLICATION_ID}")
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
        database.execute("CREATE TABLE t (x)")
    with pytest.raises(RecordingError, match="schema version"):
        Recording(tmp_path / "newer.ddltop")
    with pytest.raises(RecordingError, match="no file"):
        Recording(tmp_path / "none.ddltop")


def test_a_broken_disk_ends_the_recording_and_not_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thread = RecorderThread(tmp_path / "a.ddltop")
    thread._recorder._database.execute("DROP TABLE steps")
    thread.put_summary(make_snapshot(2), make_window([Work(), Work()], num_steps=3))
    for _ in range(10):
        thread.put_frame(0.0, b"frame")
    thread.close()
    assert "recording stopped" in capsys.readouterr().err
    assert thread.num_lost == 10


def test_names_are_safe_and_the_newest_is_found(tmp_path: Path) -> None:
    assert recording_name("train", "train-1", 0.0) == "train-1-19700101T000000Z.ddltop"
    assert "/" not in recording_name("../../etc", "a/b\x1b", 0.0)
    with pytest.raises(NoRunError):
        find_recording(None, tmp_path)
    for i, name in enumerate(("old", "new")):
        path = tmp_path / f"{name}.ddltop"
        path.touch()
        os.utime(path, (i, i))
    assert find_recording(None, tmp_path).stem == "new"
    assert find_recording("old", tmp_path).stem == "old"
    with pytest.raises(NoRunError):
        find_recording("nothing", tmp_path)
