"""Stamps of loops of many kinds become the steps and phases a person would read off them."""

from math import isnan

import pytest
from ddltop_agents.rank.assembly import StepAssembler, StepMeasure
from ddltop_agents.rank.stream import BatchSize, BucketStamp, ForwardFacts, Stamp, Tag

from ddltop.wire.messages import StepFlag

MS = 1_000_000


class Loop:
    """Write stamps down as a training loop would make them; times in whole milliseconds."""

    def __init__(self) -> None:
        self.now = 1000
        self.stamps: list[Stamp] = []

    def mark(self, tag: Tag, payload: object = None) -> None:
        self.stamps.append(Stamp(tag, self.now * MS, payload))

    def wait(self, ms: int) -> "Loop":
        self.now += ms
        return self

    def load(self, ms: int, num_yielded: int = 3) -> None:
        self.mark(Tag.IO_BEGIN, num_yielded)
        self.wait(ms).mark(Tag.IO_END)

    def forward(self, ms: int, *, training: bool = True, sync: bool = True) -> None:
        self.mark(Tag.FORWARD_BEGIN, ForwardFacts(training, sync, BatchSize(8, None)))
        self.wait(ms).mark(Tag.FORWARD_END)

    def backward(self, ms: int, *, exposed: int = 0, copy_back: int = 0, buckets: bool = True) -> None:
        """Two buckets: the first wholly hidden, the second exposed for `exposed` ms."""
        begin = self.now
        self.mark(Tag.BACKWARD_BEGIN)
        if buckets:
            first = BucketStamp(0, 100, (begin + ms // 2) * MS)
            first.end_ns = (begin + ms) * MS
            self.stamps.append(Stamp(Tag.BUCKET, first.ready_ns, first))
            last = BucketStamp(1, 200, (begin + ms) * MS)
            last.end_ns = (begin + ms + exposed) * MS
            self.stamps.append(Stamp(Tag.BUCKET, last.ready_ns, last))
        self.wait(ms).mark(Tag.BACKWARD_COMPUTED)
        self.wait(exposed + copy_back).mark(Tag.BACKWARD_END)

    def update(self, ms: int) -> None:
        self.mark(Tag.UPDATE_BEGIN, 1)
        self.wait(ms).mark(Tag.UPDATE_END)


def assemble(loop: Loop, **options: bool) -> list[StepMeasure]:
    assembler = StepAssembler(**{"is_host_clock": True, "has_peers": True, **options})
    return [*assembler.feed(loop.stamps), *assembler.finish()]


def plain_step(loop: Loop) -> None:
    loop.load(2)
    loop.wait(1)
    loop.forward(10)
    loop.wait(3)  # the loss
    loop.backward(20, exposed=7, copy_back=1)
    loop.update(4)
    loop.wait(5)  # logging


def sum_of_parts(measure: StepMeasure) -> float:
    return measure.t_io + measure.t_h2d + measure.t_f + measure.t_b + measure.t_c_no + measure.t_u + measure.rest


def test_phases_of_a_plain_loop_are_those_on_the_stop_watch() -> None:
    loop = Loop()
    plain_step(loop)
    plain_step(loop)
    first, second = assemble(loop)
    assert first.t_iter == pytest.approx(0.053)
    assert first.t_io == pytest.approx(0.002)
    assert first.t_f == pytest.approx(0.013)
    assert first.t_b == pytest.approx(0.020)
    assert first.t_c_no == pytest.approx(0.007)
    assert first.t_c == pytest.approx(0.017)  # 10 ms hidden behind backward, 7 ms exposed
    assert first.t_u == pytest.approx(0.004)
    assert first.rest == pytest.approx(0.007)  # 1 before forward, 1 copy back, 5 logging
    assert first.num_samples == 8
    assert (first.step, second.step) == (0, 1)
    assert second.t_iter == pytest.approx(0.048)  # the last step ends with its update


def test_the_parts_add_up_to_the_iteration() -> None:
    loop = Loop()
    for _ in range(4):
        plain_step(loop)
    for measure in assemble(loop):
        assert sum_of_parts(measure) == pytest.approx(measure.t_iter, rel=1e-12)


def test_buckets_are_serialised_and_counted_from_the_start_of_the_step() -> None:
    loop = Loop()
    plain_step(loop)
    (measure,) = assemble(loop)
    first, second = measure.buckets
    assert first.ready == pytest.approx(0.026)
    assert first.end == pytest.approx(0.036)
    assert (second.ready, second.start) == (pytest.approx(0.036), pytest.approx(0.036))
    assert second.end == pytest.approx(0.043)
    assert measure.backward_start == pytest.approx(0.016)
    assert measure.backward_end == pytest.approx(0.036)


def test_two_all_reduces_at_once_count_once() -> None:
    loop = Loop()
    loop.load(1)
    loop.forward(1)
    loop.mark(Tag.BACKWARD_BEGIN)
    for index, (ready, end) in enumerate([(2, 30), (4, 28)]):
        bucket = BucketStamp(index, 10, (loop.now + ready) * MS)
        bucket.end_ns = (loop.now + end) * MS
        loop.stamps.append(Stamp(Tag.BUCKET, bucket.ready_ns, bucket))
    loop.wait(10).mark(Tag.BACKWARD_COMPUTED)
    loop.wait(20).mark(Tag.BACKWARD_END)
    loop.update(1)
    (measure,) = assemble(loop)
    assert measure.t_c == pytest.approx(0.028)
    assert measure.t_c_no == pytest.approx(0.020)


def test_accumulation_is_one_step_whose_communication_is_that_of_the_synchronising_backward() -> None:
    loop = Loop()
    for _ in range(2):
        for last in (False, True):
            loop.load(1)
            loop.forward(10, sync=last)
            loop.backward(20, exposed=6 if last else 0, buckets=last)
        loop.update(4)
    first, second = assemble(loop)
    assert first.num_micro_steps == 2
    assert first.num_samples == 16
    assert first.t_b == pytest.approx(0.040)
    assert first.t_c_no == pytest.approx(0.006)
    assert second.step == 1


def test_without_a_loader_a_step_goes_from_update_to_update_and_its_input_is_inferred() -> None:
    loop = Loop()
    for _ in range(3):
        loop.wait(6)  # a batch is made by hand
        loop.forward(10)
        loop.backward(20, exposed=5)
        loop.update(4)
        loop.wait(1)  # logging
    first, second, third = assemble(loop)
    assert first.t_iter == pytest.approx(0.039)
    assert not first.flags & StepFlag.INFERRED_IO  # nothing was seen before its forward
    assert second.t_iter == pytest.approx(0.046)
    assert second.t_io == pytest.approx(0.007)
    assert second.flags & StepFlag.INFERRED_IO
    assert third.step == 2


def test_untimed_buckets_leave_t_c_unmeasured_but_its_exposed_part_known() -> None:
    loop = Loop()
    loop.load(1)
    loop.forward(10)
    loop.backward(20, exposed=5, buckets=False)
    loop.update(4)
    (measure,) = assemble(loop)
    assert isnan(measure.t_c)
    assert measure.t_c_no == pytest.approx(0.005)
    assert measure.buckets == ()


def test_a_bucket_that_never_ended_makes_communication_unmeasured() -> None:
    loop = Loop()
    plain_step(loop)
    next(stamp.payload for stamp in loop.stamps if stamp.tag == Tag.BUCKET).end_ns = None
    (measure,) = assemble(loop)
    assert isnan(measure.t_c)
    assert isnan(measure.t_c_no)


def test_a_lone_worker_communicates_nothing() -> None:
    loop = Loop()
    loop.load(1)
    loop.forward(10)
    loop.backward(20, exposed=0, copy_back=1, buckets=False)
    loop.update(4)
    (measure,) = assemble(loop, has_peers=False)
    assert (measure.t_c, measure.t_c_no) == (0.0, 0.0)


def test_on_an_asynchronous_device_host_stamps_claim_only_step_and_input_time() -> None:
    loop = Loop()
    plain_step(loop)
    (measure,) = assemble(loop, is_host_clock=False)
    assert measure.t_iter == pytest.approx(0.048)
    assert measure.t_io == pytest.approx(0.002)
    for value in (measure.t_f, measure.t_b, measure.t_c, measure.t_c_no, measure.t_u, measure.rest, measure.t_h2d):
        assert isnan(value)
    assert measure.buckets == ()


def test_an_evaluation_between_epochs_is_in_no_step() -> None:
    loop = Loop()
    plain_step(loop)
    for _ in range(3):
        loop.load(2)
        loop.forward(9, training=False)
    loop.mark(Tag.IO_BEGIN, 3)
    loop.wait(1).mark(Tag.IO_STOP)
    plain_step(loop)
    first, second = assemble(loop)
    assert first.t_iter == pytest.approx(0.053)
    assert second.t_iter == pytest.approx(0.048)
    assert second.flags & StepFlag.EVALUATION


def test_an_evaluation_without_a_loader_is_taken_out_of_the_step() -> None:
    loop = Loop()
    plain_step(loop)
    loop.forward(50, training=False)
    plain_step(loop)
    first, _second = assemble(loop)
    assert first.t_iter == pytest.approx(0.053)
    assert sum_of_parts(first) == pytest.approx(first.t_iter)


def test_the_first_batch_of_an_epoch_is_marked() -> None:
    loop = Loop()
    loop.load(30, num_yielded=0)
    loop.forward(10)
    loop.backward(20)
    loop.update(4)
    (measure,) = assemble(loop)
    assert measure.flags & StepFlag.FIRST_BATCH


def test_a_skipped_amp_step_still_is_a_step() -> None:
    loop = Loop()
    loop.load(1)
    loop.forward(10)
    loop.backward(20)
    loop.wait(1).mark(Tag.SCALER_UPDATE)
    plain_step(loop)
    skipped, normal = assemble(loop)
    assert skipped.flags & StepFlag.SKIPPED
    assert not normal.flags & StepFlag.SKIPPED
    assert skipped.t_u == 0.0


def test_a_closure_runs_forward_and_backward_inside_the_update() -> None:
    loop = Loop()
    for _ in range(2):
        loop.mark(Tag.UPDATE_BEGIN)
        for _ in range(3):
            loop.forward(10)
            loop.backward(20, exposed=2)
        loop.wait(5).mark(Tag.UPDATE_END)
    first, second = assemble(loop)
    assert first.t_u == pytest.approx(0.005)
    assert first.t_f == pytest.approx(0.030)
    assert first.t_b == pytest.approx(0.060)
    assert second.step == 1


def test_stamps_that_begin_in_the_middle_of_a_step_do_not_disturb_the_next() -> None:
    loop = Loop()
    plain_step(loop)
    plain_step(loop)
    plain_step(loop)
    loop.stamps = loop.stamps[5:]
    measures = assemble(loop)
    assert measures[-2].t_iter == pytest.approx(0.053)


def test_a_loop_that_leaves_its_loader_behind_goes_on_to_have_steps() -> None:
    loop = Loop()
    plain_step(loop)
    plain_step(loop)
    for _ in range(30):
        loop.forward(10)
        loop.backward(20)
        loop.update(4)
    measures = assemble(loop)
    # The first of them cannot be told from updates on the last batch.
    assert len(measures) >= 2 + 30 - 8
    assert measures[-1].t_iter == pytest.approx(0.034)


def test_a_critic_that_trains_several_times_on_a_batch_is_one_step() -> None:
    loop = Loop()
    for _ in range(3):
        loop.load(2)
        for _ in range(5):
            loop.forward(10)
            loop.backward(20)
            loop.update(4)
    assert len(assemble(loop)) == 3
