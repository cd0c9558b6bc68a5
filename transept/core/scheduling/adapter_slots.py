"""AdapterSlots: which adapter is in which slot of the execution side. The scheduler asks it for a slot at admission."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from transept.core.request.inputs import Adapter
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import AdapterLoad


class AdapterSlots:
    """A fixed number of adapter slots. A new adapter replaces the least recently used one that no running request uses.

    Adapters stay in their slots without requests, so that the next
    request need not load them.
    """

    def __init__(self, count: int = 1) -> None:
        self._count = count
        self.reset()

    def reset(self) -> None:
        """Forget the content of all slots. No request may be running."""
        self._slots: dict[Adapter, int] = {}  # least recently used first

    def serve(self, group: SequenceGroup, running: Iterable[SequenceGroup], loads: list[AdapterLoad]) -> bool:
        """Give a group the slot of its adapter, if it has one. If the slot must be filled, add that to a step's loads.

        Returns True also for a group without an adapter. Returns False if running groups use all slots.
        """
        if group.adapter is None:
            return True
        in_use = {each.adapter_slot for each in running}
        if not self.fits(group.adapter, in_use):
            return False
        group.adapter_slot, load = self.take(group.adapter, in_use)
        loads += [] if load is None else [load]
        return True

    def fits(self, adapter: Adapter, in_use: Collection[int | None]) -> bool:
        """Return True if `take` can give the adapter a slot. in_use: slots of running requests."""
        return adapter in self._slots or any(slot not in in_use for slot in range(self._count))

    def take(self, adapter: Adapter, in_use: Collection[int | None]) -> tuple[int, AdapterLoad | None]:
        """Return the adapter's slot, and the load that fills it; None if the slot has the adapter. See `fits`."""
        if (slot := self._slots.pop(adapter, None)) is not None:
            self._slots[adapter] = slot
            return slot, None
        empty = (each for each in range(self._count) if each not in {*self._slots.values()} | {*in_use})
        slot = next(empty, None)
        if slot is None:
            oldest, slot = next((each, slot) for each, slot in self._slots.items() if slot not in in_use)
            del self._slots[oldest]
        self._slots[adapter] = slot
        return slot, AdapterLoad(slot, adapter.updates)
