"""Routing in a pool: the choice of the member for the next message, and the limit on its load.

Guarantees: a choice looks at the workers as they are now, and costs a call nothing after it. Round robin, least loaded
and sticky leave out workers that are down while one is up. A sticky key stays with one incarnation of a worker; at most
`max_keys` of them are held, those that were used last.

With `max_queued` a choice fails, or drops the oldest message of the longest queue, when that many messages wait in all
queues together, senders that wait for room included. A message that is being handled does not wait.

Not here: sending. A caller that keeps an address that was chosen sends around both rules.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping

import attrs

from proctor.runtime.errors import PoolOverloaded
from proctor.runtime.spec import Routing, RoutingOptions
from proctor.runtime.supervision.child import Incarnation
from proctor.runtime.supervision.child_table import Slot


@attrs.frozen(kw_only=True)
class PartitionStatistics:
    """A pool at one moment.

    `queued` is how many messages wait for each partition, `None` for one that is down; `refused` how many routes were
    refused and `dropped` how many messages were dropped since its start, both because of `max_queued`; `keys` how many
    sticky keys are held.
    """

    routing: Routing
    queued: tuple[int | None, ...]
    refused: int
    dropped: int
    keys: int


class Router:
    """The choices of one incarnation of a pool, among the workers at the places 0 … n-1 of `slots`."""

    def __init__(self, path: str, slots: Mapping[str, Slot], options: RoutingOptions) -> None:
        self._path, self._slots, self._options = path, slots, options
        self._pick = PICKS[options.routing]
        self._turn = -1
        self._sticky: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        self._refused = self._dropped = 0

    def route(self, key: Hashable, number: int) -> int:
        """The place for a message with `key`, of `number` places. Raises `PoolOverloaded`."""
        if self._options.max_queued is not None:
            # Room first, for all routings alike: a choice that is refused must not move the turn or a sticky
            # key.
            self._make_room(self._options.max_queued, number)
        return self._pick(self, key, number)

    def statistics(self, number: int) -> PartitionStatistics:
        """The figures of now."""
        return PartitionStatistics(
            routing=self._options.routing,
            queued=tuple(self._queued(place) for place in range(number)),
            refused=self._refused,
            dropped=self._dropped,
            keys=len(self._sticky),
        )

    def by_key(self, key: Hashable, number: int) -> int:
        """The same place for the same key and number."""
        share = abs(key) if isinstance(key, int) else hash(key)
        return share % number

    def in_turn(self, key: Hashable, number: int) -> int:
        """The next place with a worker."""
        for _ in range(number):
            self._turn = (self._turn + 1) % number
            if self._worker(self._turn) is not None:
                break
        return self._turn

    def least_loaded(self, key: Hashable, number: int) -> int:
        """The worker with the shortest queue; equal ones in turn."""
        self._turn = (self._turn + 1) % number
        places = ((self._turn + step) % number for step in range(number))
        loads = [(load, place) for place in places if (load := self._load(place)) is not None]
        return min(loads, key=lambda entry: entry[0])[1] if loads else self._turn

    def sticky(self, key: Hashable, number: int) -> int:
        """The worker that had this key before, while that lives; else the least loaded."""
        place, count = self._sticky.get(key, (number, 0))
        # The count, too: a restarted worker has lost what it had kept about the key.
        if place < number and self._worker(place) is not None and self._slots[str(place)].count == count:
            self._sticky.move_to_end(key)
            return place
        place = self.least_loaded(key, number)
        if self._worker(place) is not None:
            self._sticky[key] = place, self._slots[str(place)].count
            self._sticky.move_to_end(key)
            if len(self._sticky) > self._options.max_keys:
                self._sticky.popitem(last=False)
        return place

    def _worker(self, place: int) -> Incarnation | None:
        slot = self._slots.get(str(place))
        worker = None if slot is None else slot.incarnation
        return None if worker is None or worker.reason is not None else worker

    def _queued(self, place: int) -> int | None:
        worker = self._worker(place)
        if worker is None:
            return None
        return 0 if worker.mailbox is None else worker.mailbox.load()

    def _load(self, place: int) -> int | None:
        queued, worker = self._queued(place), self._worker(place)
        if queued is None or worker is None:
            return None
        return queued + (worker.endpoint.handling is not None)

    def _make_room(self, limit: int, number: int) -> None:
        queued = [self._queued(place) or 0 for place in range(number)]
        if sum(queued) < limit:
            return
        overloaded = PoolOverloaded(self._path, sum(queued), limit)
        if self._options.shed == "newest" or not self._drop_oldest(queued.index(max(queued)), overloaded):
            self._refused += 1
            raise overloaded

    def _drop_oldest(self, place: int, overloaded: PoolOverloaded) -> bool:
        worker = self._worker(place)
        oldest = None if worker is None or worker.mailbox is None else worker.mailbox.drop_oldest()
        if worker is None or oldest is None:
            return False
        self._dropped += 1
        oldest.undelivered(worker.endpoint, overloaded)
        return True


PICKS: Mapping[Routing, Callable[[Router, Hashable, int], int]] = {
    "key": Router.by_key,
    "round_robin": Router.in_turn,
    "least_loaded": Router.least_loaded,
    "sticky": Router.sticky,
}
