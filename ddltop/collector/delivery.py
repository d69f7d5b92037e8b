"""Exactly-once intake of numbered batches from one agent process."""


class Delivery:
    """Know which sequence numbers of one agent epoch have come; gaps are waited for until the agent gives them up."""

    def __init__(self) -> None:
        self._arrived_to = 0  # everything up to here has come or is lost
        self._ahead: set[int] = set()
        self.num_lost = 0
        self.num_duplicates = 0

    @property
    def next_seq(self) -> int:
        """Give the first number that has not come and is not given up."""
        return self._arrived_to + 1

    def accept(self, seq: int) -> bool:
        """Note a batch; tell whether it is new."""
        if seq <= self._arrived_to or seq in self._ahead:
            self.num_duplicates += 1
            return False
        self._ahead.add(seq)
        self._advance()
        return True

    def give_up_before(self, first_seq: int) -> None:
        """Count what the agent no longer holds and has never delivered."""
        while self._arrived_to < first_seq - 1:
            missing = self._arrived_to + 1
            if missing not in self._ahead:
                # The agent's ring has dropped all up to first_seq: count what never came in one go.
                known = [seq for seq in self._ahead if seq < first_seq]
                self.num_lost += first_seq - 1 - self._arrived_to - len(known)
                self._ahead.difference_update(known)
                self._arrived_to = first_seq - 1
            self._advance()

    def _advance(self) -> None:
        while self._arrived_to + 1 in self._ahead:
            self._arrived_to += 1
            self._ahead.remove(self._arrived_to)
