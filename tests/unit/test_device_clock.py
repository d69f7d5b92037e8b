"""The device clock over a simulated device that runs behind the host; its events are counted."""

from ddltop_agents.rank.device_clock import MAX_PENDING_STEPS, DeviceClock
from ddltop_agents.rank.stream import Mark


class Event:
    at_ns: int | None = None


class Device:
    """Events that are done once the device's own time has passed them."""

    def __init__(self) -> None:
        self.host_ns = self.device_ns = 0
        self.num_made = 0
        self.is_in_capture = False

    def make(self) -> Event:
        self.num_made += 1
        return Event()

    def record(self, event: Event) -> None:
        assert not self.is_in_capture
        event.at_ns = self.host_ns

    def is_done(self, event: Event) -> bool:
        assert not self.is_in_capture
        assert event.at_ns is not None
        return event.at_ns <= self.device_ns

    def elapsed_ns(self, begin: Event, end: Event) -> float:
        assert self.is_done(begin) and self.is_done(end)
        assert begin.at_ns is not None and end.at_ns is not None
        return end.at_ns - begin.at_ns

    def is_capturing(self) -> bool:
        return self.is_in_capture

    def is_on_main_stream(self) -> bool:
        return True


def take_step(clock: DeviceClock, device: Device, num_marks: int = 5) -> list[Mark | None]:
    clock.turn(is_detailed=True)
    marks = []
    for _ in range(num_marks):
        device.host_ns += 1_000
        marks.append(clock.mark())
    return marks


def test_marks_are_known_once_the_device_has_passed_them() -> None:
    device = Device()
    clock = DeviceClock(device, pool_events=64)
    first = take_step(clock, device)
    take_step(clock, device)
    assert [mark.is_settled for mark in first if mark] == [False] * 5
    device.device_ns = device.host_ns
    take_step(clock, device)
    times = [mark.at_ns for mark in first if mark]
    assert times == [0, 1_000, 2_000, 3_000, 4_000]


def test_ten_thousand_steps_make_no_further_event_and_one_time_line() -> None:
    device = Device()
    clock = DeviceClock(device, pool_events=64)
    ends = []
    for _ in range(10_000):
        ends.append(take_step(clock, device)[-1])
        device.device_ns = device.host_ns - 8_000
    device.device_ns = device.host_ns
    clock.finish()
    assert device.num_made == 64
    assert clock.num_unmarked == 0
    # The newest known mark keeps its event: the time line goes on from it.
    assert clock.num_free == 63
    times = [mark.at_ns for mark in ends if mark]
    assert times == [4_000 + 5_000 * step for step in range(10_000)]


def test_a_device_that_stands_still_is_given_up_without_growth() -> None:
    device = Device()
    clock = DeviceClock(device, pool_events=4096)
    device.device_ns = -1
    first = take_step(clock, device)
    for _ in range(MAX_PENDING_STEPS + 2):
        take_step(clock, device)
    assert all(mark is not None and mark.is_settled and mark.at_ns is None for mark in first)
    assert device.num_made == 4096


def test_an_empty_pool_leaves_marks_out_and_counts_them() -> None:
    device = Device()
    clock = DeviceClock(device, pool_events=3)
    marks = take_step(clock, device)
    assert [mark is None for mark in marks] == [False, False, False, True, True]
    assert clock.num_unmarked == 2


def test_nothing_is_recorded_or_asked_during_a_graph_capture() -> None:
    device = Device()
    clock = DeviceClock(device, pool_events=64)
    take_step(clock, device)
    device.device_ns = device.host_ns
    device.is_in_capture = True
    assert take_step(clock, device) == [None] * 5
    assert clock.num_unmarked == 5
