"""Read the stamps of one step and put every nanosecond into one account.

Pure. What is going on at a moment is the innermost begun thing that has not ended; a thing that never ended (its
call raised) ends with whatever encloses it.
"""

from dataclasses import dataclass

from ddltop.wire.collectives import COLLECTIVE_PLACES, CollectivePlace
from ddltop.wire.messages import StepFlag
from ddltop.wire.phases import Phase

from .ledger import Ledger, Part, covered_ns
from .stream import BatchSize, BucketStamp, CollectiveCall, ForwardFacts, Stamp, Tag

_PLACES = {
    Part.FORWARD: CollectivePlace.FORWARD,
    Part.LOSS: CollectivePlace.FORWARD,
    Part.BACKWARD: CollectivePlace.BACKWARD,
    Part.TAIL: CollectivePlace.BACKWARD,
    Part.UPDATE: CollectivePlace.UPDATE,
}
# The phases a script can name itself.
PART_OF_PHASE = {
    Phase.T_IO: Part.IO,
    Phase.T_H2D: Part.H2D,
    Phase.T_F: Part.FORWARD,
    Phase.T_B: Part.BACKWARD,
    Phase.T_C: Part.COLLECTIVE,
    Phase.T_U: Part.UPDATE,
    Phase.REST: Part.ASIDE,
}


def read_segment(
    stamps: list[Stamp], start: Stamp, end: Stamp, *, is_after_update: bool, is_host_clock: bool
) -> Ledger:
    """Add up one step from `start` to `end`."""
    reader = _Reader(start.at_ns, is_after_update=is_after_update, is_host_clock=is_host_clock)
    for stamp in stamps:
        reader.read(stamp)
    return reader.close(end.at_ns)


@dataclass(slots=True)
class _Open:
    """Something that has begun; `spent` is its own time so far, without what is nested in it."""

    part: Part
    began_ns: int
    spent: int = 0


class _Reader:
    """Walk over the stamps with a stack of what is going on."""

    def __init__(self, start_ns: int, *, is_after_update: bool, is_host_clock: bool) -> None:
        self._ledger = Ledger()
        self._is_host_clock = is_host_clock
        self._stack = [_Open(Part.HEAD if is_after_update else Part.REST, start_ns)]
        self._last_ns = start_ns
        self._facts: ForwardFacts | None = None
        self._has_forward = False  # since the last backward
        self._pending: list[BucketStamp] = []
        self._loaded: BatchSize | None = None

    def read(self, stamp: Stamp) -> None:
        """Take the next stamp."""
        if stamp.tag == Tag.BUCKET:
            # Its time is the bucket's own, which on a device need not be in order with the stamps of the host.
            self._pending.append(stamp.payload)
            return
        self._pass_to(stamp.at_ns)
        _STEPS[stamp.tag](self, stamp)

    def close(self, end_ns: int) -> Ledger:
        """Give the sums, up to the end of the step."""
        self._pass_to(end_ns)
        while len(self._stack) > 1:
            self._pop_to(self._stack[-1].part)
        self._end_base()
        if not self._ledger.num_samples and self._loaded is not None:
            self._count(self._loaded)
        return self._ledger

    def _pass_to(self, now_ns: int) -> None:
        # A device's time line may step back by its resolution.
        if now_ns > self._last_ns:
            self._stack[-1].spent += now_ns - self._last_ns
            self._last_ns = now_ns

    def _push(self, part: Part) -> None:
        self._stack.append(_Open(part, self._last_ns))

    def _pop_to(self, part: Part) -> _Open | None:
        """End the innermost `part`, and what is still open inside it; None when there is none."""
        index = max((i for i, held in enumerate(self._stack) if i > 0 and held.part == part), default=None)
        if index is None:
            return None
        while len(self._stack) > index + 1:
            inner = self._stack.pop()
            self._ledger.spent[inner.part] += inner.spent
        ended = self._stack.pop()
        self._ledger.spent[part] += ended.spent
        return ended

    def _end_base(self, counts_as: Part | None = None) -> None:
        """End what goes on outside of everything: the time at the head, or between input and forward."""
        base = self._stack[0]
        self._ledger.spent[counts_as if counts_as is not None else base.part] += base.spent
        self._stack[0] = _Open(Part.REST, self._last_ns)

    def _end_loss(self, counts_as: Part | None) -> None:
        """End the time after a forward: loss if a backward or another forward follows, else the enclosing part's."""
        if self._stack[-1].part == Part.LOSS:
            loss = self._stack.pop()
            if counts_as is None:
                self._stack[-1].spent += loss.spent
            else:
                self._ledger.spent[counts_as] += loss.spent

    def _count(self, size: BatchSize) -> None:
        self._ledger.num_samples += size.num_samples or 0
        self._ledger.num_tokens += size.num_tokens or 0

    # One method a tag

    def _begin_io(self, stamp: Stamp) -> None:
        self._end_loss(None)
        if self._stack[0].part != Part.REST:
            self._end_base(Part.REST)
        self._ledger.saw_loader = True
        self._ledger.flags |= StepFlag.FIRST_BATCH if stamp.payload == 0 else 0
        self._push(Part.IO)

    def _end_io(self, stamp: Stamp) -> None:
        self._pop_to(Part.IO)
        if stamp.payload is not None:
            self._loaded = stamp.payload
        if len(self._stack) == 1:
            self._end_base()
            self._stack[0].part = Part.LOADED

    def _begin_forward(self, stamp: Stamp) -> None:
        self._facts = stamp.payload
        self._end_loss(Part.FORWARD)
        self._end_lead(is_forward_seen=True)
        self._push(Part.FORWARD if stamp.payload.is_training else Part.EVALUATION)

    def _end_lead(self, *, is_forward_seen: bool) -> None:
        """End what led up to forward: the copy to the device after a batch, or (inferred) the input without a loader.

        A model that is not wrapped shows no forward: then it is forward that led up to backward.
        """
        lead = self._stack[0].part
        if lead not in (Part.HEAD, Part.LOADED):
            return
        if not is_forward_seen:
            self._ledger.flags |= StepFlag.INFERRED_FORWARD
            self._ledger.is_io_known &= lead != Part.HEAD
            self._end_base(Part.FORWARD)
        elif lead == Part.HEAD:
            self._ledger.flags |= StepFlag.INFERRED_IO
            self._end_base(Part.IO)
        else:
            self._end_base(Part.REST if self._is_host_clock else Part.H2D)

    def _end_forward(self, _stamp: Stamp) -> None:
        if self._facts is None or not self._facts.is_training:
            self._pop_to(Part.EVALUATION)
            self._ledger.flags |= StepFlag.EVALUATION
            return
        if self._pop_to(Part.FORWARD) is not None:
            self._has_forward = True
            self._count(self._facts.size)
            self._push(Part.LOSS)

    def _begin_backward(self, _stamp: Stamp) -> None:
        self._end_loss(Part.FORWARD)
        self._end_lead(is_forward_seen=self._has_forward)
        self._has_forward = False
        self._pending = []
        self._push(Part.BACKWARD)

    def _note_computed(self, stamp: Stamp) -> None:
        if self._stack[-1].part == Part.BACKWARD and self._is_ddp:
            held = self._pop_to(Part.BACKWARD)
            self._push(Part.TAIL)
            self._ledger.backward_start_ns = held.began_ns if held is not None else None
            self._ledger.computed_ns = stamp.at_ns

    @property
    def _is_ddp(self) -> bool:
        return self._facts is not None and self._facts.is_ddp

    def _end_backward(self, _stamp: Stamp) -> None:
        self._ledger.num_micro_steps += 1
        tail = self._pop_to(Part.TAIL)
        if tail is not None:
            self._end_tail(tail)
            return
        self._pop_to(Part.BACKWARD)
        # Without the stamp between them backward cannot be parted from the wait inside it.
        self._ledger.is_backward_known &= not self._is_ddp or self._ledger.is_coarse

    def _end_tail(self, tail: _Open) -> None:
        """Part the wait for the buckets from the copying back that follows it."""
        ledger, buckets = self._ledger, self._pending
        exposed = 0
        if buckets:
            ended = [(b.ready_ns, b.end_ns) for b in buckets if b.end_ns is not None]
            ledger.is_comm_known &= len(ended) == len(buckets)
            ledger.comm += ended
            exposed = covered_ns([(max(ready, tail.began_ns), end) for ready, end in ended if end > tail.began_ns])
            ledger.buckets = buckets
        elif self._facts is not None and self._facts.is_synchronising:
            exposed = tail.spent
            ledger.has_untimed_buckets = True
        exposed = min(exposed, tail.spent)
        ledger.spent[Part.TAIL] = 0
        ledger.spent[Part.COLLECTIVE] += exposed
        ledger.spent[Part.REST] += tail.spent - exposed

    def _begin_update(self, _stamp: Stamp) -> None:
        self._end_loss(None)
        self._pop_to(Part.UPDATE)  # one whose step() raised
        if self._stack[0].part == Part.HEAD:
            self._ledger.flags |= StepFlag.INFERRED_IO
            self._end_base(Part.IO)
        self._push(Part.UPDATE)

    def _end_update(self, _stamp: Stamp) -> None:
        self._end_loss(None)
        self._pop_to(Part.UPDATE)
        self._ledger.updated = True

    def _begin_collective(self, _stamp: Stamp) -> None:
        self._push(Part.COLLECTIVE)

    def _end_collective(self, stamp: Stamp) -> None:
        call: CollectiveCall = stamp.payload
        ended = self._pop_to(Part.COLLECTIVE)
        if ended is None:
            return
        outer = self._stack[-1]
        if outer.part == Part.EVALUATION:
            self._ledger.spent[Part.COLLECTIVE] -= ended.spent
            outer.spent += ended.spent
            return
        exposed = ended.spent
        if call.is_async:
            # The call only launched the work: its own time is the caller's.
            self._ledger.spent[Part.COLLECTIVE] -= ended.spent
            outer.spent += ended.spent
            exposed = 0
            if call.ended_ns is None:
                self._ledger.is_comm_known &= not self._is_host_clock
            else:
                self._ledger.comm.append((stamp.at_ns, call.ended_ns))
        else:
            self._ledger.comm.append((ended.began_ns, stamp.at_ns))
        place = COLLECTIVE_PLACES.index(_PLACES.get(outer.part, CollectivePlace.BETWEEN))
        calls, nbytes, so_far = self._ledger.collectives.get((call.kind, place), (0, 0, 0))
        self._ledger.collectives[call.kind, place] = (
            calls + (not call.is_wait),
            nbytes + call.nbytes,
            so_far + exposed,
        )

    def _begin_aside(self, _stamp: Stamp) -> None:
        self._end_loss(None)
        self._push(Part.ASIDE)

    def _begin_phase(self, stamp: Stamp) -> None:
        self._end_loss(None)
        part = PART_OF_PHASE[stamp.payload]
        if part == Part.IO:
            self._ledger.saw_loader = True
        self._push(part)

    def _end_phase(self, stamp: Stamp) -> None:
        part = PART_OF_PHASE[stamp.payload]
        ended = self._pop_to(part)
        if ended is None:
            return
        if part == Part.COLLECTIVE:
            self._ledger.comm.append((ended.began_ns, stamp.at_ns))
        elif part == Part.BACKWARD:
            self._ledger.num_micro_steps += 1
        elif part == Part.UPDATE:
            self._ledger.updated = True

    def _pop_io(self, _stamp: Stamp) -> None:
        self._pop_to(Part.IO)

    def _pop_aside(self, _stamp: Stamp) -> None:
        self._pop_to(Part.ASIDE)

    def _note_coarse(self, _stamp: Stamp) -> None:
        self._ledger.is_coarse = True

    def _skip(self, _stamp: Stamp) -> None:
        return


_STEPS = {
    Tag.IO_BEGIN: _Reader._begin_io,
    Tag.IO_END: _Reader._end_io,
    Tag.IO_STOP: _Reader._pop_io,
    Tag.FORWARD_BEGIN: _Reader._begin_forward,
    Tag.FORWARD_END: _Reader._end_forward,
    Tag.BACKWARD_BEGIN: _Reader._begin_backward,
    Tag.BACKWARD_COMPUTED: _Reader._note_computed,
    Tag.BACKWARD_END: _Reader._end_backward,
    Tag.UPDATE_BEGIN: _Reader._begin_update,
    Tag.UPDATE_END: _Reader._end_update,
    Tag.SCALER_UPDATE: _Reader._skip,
    Tag.COLLECTIVE_BEGIN: _Reader._begin_collective,
    Tag.COLLECTIVE_END: _Reader._end_collective,
    Tag.ASIDE_BEGIN: _Reader._begin_aside,
    Tag.ASIDE_END: _Reader._pop_aside,
    Tag.PHASE_BEGIN: _Reader._begin_phase,
    Tag.PHASE_END: _Reader._end_phase,
    Tag.STEP: _Reader._skip,
    Tag.COARSE: _Reader._note_coarse,
}
