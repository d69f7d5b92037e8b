"""The steps of a recording, decoded from its frames by this file alone: nothing of the collector is used."""

import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from ddltop.recording.reader import Recording
from ddltop.wire.codec import decode_for_collector
from ddltop.wire.collectives import COLLECTIVE_KINDS, COLLECTIVE_PLACES, DTYPES
from ddltop.wire.messages import NodeBatch, RankHello, RankSteps
from ddltop.wire.phases import PHASES
from tests.integration.conftest import Lab


@dataclass(frozen=True, kw_only=True)
class Bucket:
    index: int
    nbytes: int
    dtype: str
    ready: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Collective:
    kind: str
    place: str
    calls: int
    nbytes: int
    exposed: float


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of one rank, seconds."""

    epoch: str
    rank: int
    step: int
    start_us: int
    phases: dict[str, float]
    num_samples: float
    num_tokens: float
    num_micro_steps: int
    flags: int
    evaluation: float
    buckets: tuple[Bucket, ...]
    collectives: tuple[Collective, ...]

    def __getattr__(self, name: str) -> float:
        if name in self.phases:
            return self.phases[name]
        raise AttributeError(name)


@dataclass
class Recorded:
    """All that the ranks of a run have told, in the order of their steps."""

    steps: list[Step]
    hellos: list[RankHello]

    def of(self, rank: int, begin_us: int = 0, end_us: int = 2**63) -> list[Step]:
        """The steps of a rank that ended between two times."""

        def end(step: Step) -> float:
            return step.start_us + 1e6 * (step.t_iter + step.evaluation)

        return [step for step in self.steps if step.rank == rank and begin_us < end(step) <= end_us]

    def last_hello(self, rank: int) -> RankHello:
        return [hello for hello in self.hellos if hello.rank == rank][-1]


def recorded(lab: Lab) -> Recorded:
    """Read the newest recording of a test's home."""
    files = (lab.home / ".local" / "state" / "ddltop").glob("*.ddltop")
    return read(max(files, key=lambda path: path.stat().st_mtime))


def read(path: Path) -> Recorded:
    found: dict[tuple[str, int], Step] = {}
    hellos = []
    recording = Recording(path)
    for _, frame in recording.frames():
        message = decode_for_collector(frame)
        for record in message.records if isinstance(message, NodeBatch) else ():
            if isinstance(record, RankSteps):
                found.update({(step.epoch, step.step): step for step in _unpack(record)})
            elif isinstance(record, RankHello):
                hellos.append(record)
    recording.close()
    return Recorded(sorted(found.values(), key=lambda step: (step.rank, step.start_us)), hellos)


def _unpack(record: RankSteps) -> list[Step]:
    def column(blob: bytes, code: str) -> list[float]:
        return [value for (value,) in struct.iter_unpack(f"<{code}", blob)]

    phases = column(record.phases, "f")
    width = len(PHASES)
    bucket_columns = [
        column(record.bucket_index, "H"),
        column(record.bucket_nbytes, "Q"),
        column(record.bucket_dtype, "B"),
        column(record.bucket_ready, "f"),
        column(record.bucket_end, "f"),
    ]
    buckets = [
        Bucket(index=int(i), nbytes=int(n), dtype=DTYPES[int(d)], ready=r, end=e)
        for i, n, d, r, e in zip(*bucket_columns, strict=True)
    ]
    collective_columns = [
        column(record.collective_kind, "B"),
        column(record.collective_place, "B"),
        column(record.collective_calls, "H"),
        column(record.collective_nbytes, "Q"),
        column(record.collective_exposed, "f"),
    ]
    collectives = [
        Collective(
            kind=COLLECTIVE_KINDS[int(k)], place=COLLECTIVE_PLACES[int(p)], calls=int(c), nbytes=int(n), exposed=e
        )
        for k, p, c, n, e in zip(*collective_columns, strict=True)
    ]
    taken: dict[str, int] = defaultdict(int)

    def take(items: list, count: float, name: str) -> tuple:  # type: ignore[type-arg]
        begin = taken[name]
        taken[name] += int(count)
        return tuple(items[begin : begin + int(count)])

    rows = zip(
        column(record.steps, "I"),
        column(record.start_us, "Q"),
        column(record.num_samples, "f"),
        column(record.num_tokens, "f"),
        column(record.num_micro_steps, "H"),
        column(record.flags, "B"),
        column(record.evaluation, "f"),
        column(record.bucket_counts, "H"),
        column(record.collective_counts, "H"),
        strict=True,
    )
    return [
        Step(
            epoch=record.epoch,
            rank=record.rank,
            step=int(step),
            start_us=int(start_us),
            phases={phase.value: phases[i * width + p] for p, phase in enumerate(PHASES)},
            num_samples=num_samples,
            num_tokens=num_tokens,
            num_micro_steps=int(num_micro_steps),
            flags=int(flags),
            evaluation=evaluation,
            buckets=take(buckets, num_buckets, "buckets"),
            collectives=take(collectives, num_collectives, "collectives"),
        )
        for i, (
            step, start_us, num_samples, num_tokens, num_micro_steps, flags, evaluation, num_buckets, num_collectives,
        ) in enumerate(rows)
    ]  # fmt: skip
