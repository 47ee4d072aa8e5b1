"""One predicted incarnation: a worker that lives as its `Life` says, or a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.clockwork import Signal, Steps, Wait
from tests.simulation.program import Life, Node, Worker

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.simulation.model import Guide

PATIENCE = 5.0
"""Seconds after which one that was killed and lives is reported (T10)."""


class Child:
    """One incarnation. `reason` is final once `ended` has happened."""

    def __init__(self, node: Node, path: str, number: int, under: Guide) -> None:
        self.node, self.path, self.number = node, path, number
        self._under, self._universe = under, under.universe
        self.ready = self.ignored = self.given_up = False
        self.reason = ""
        self.guide: Guide | None = None
        self.settled, self.ended = Signal(), Signal()
        self._asked, self._killed = Signal(), Signal()
        self.ends = self._overdue = self._crashed = False
        self.ready_at = self.ended_at = 0.0
        if not isinstance(node, Worker):
            self.guide = type(under)(node, path, self._universe, self._become_ready)
            self.guide.begin_end = self._begin_end

    def take_names(self) -> bool:
        """Hold its place and its name, unless the name is held by somebody alive (S12, M29)."""
        name, names = self.node.name, self._universe.names
        if name is not None:
            self._universe.touch(name, self._under.path)
            if name in names:
                return False
            names[name] = self
        self._universe.places[self.path] = self
        return True

    def _become_ready(self) -> None:
        self.ready, self.ready_at = True, self._universe.clock.now
        self._happen(self.settled)

    def stop(self) -> None:
        """Ask it to end."""
        self._notice_race()
        self._begin_end()
        self._happen(self._asked)
        if self.guide is not None:
            self.guide.stop()

    def kill(self) -> None:
        """End it by force."""
        self._notice_race()
        if not self._killed.happened:
            self._universe.clock.start(self._report())
        self._happen(self._killed)
        if self.guide is not None:
            self.guide.kill()

    def _begin_end(self) -> None:
        """The time to end in runs from here, whoever began it (S38)."""
        if not self.ends and not self.ended.happened:
            self.ends = True
            self._universe.clock.start(self._expire(self._universe.clock.now + self._under.own_grace(self)))

    def _expire(self, limit: float) -> Steps:
        yield Wait((self.ended, self._killed), limit)
        if not self.ended.happened and not self._killed.happened:
            self._under.see("killed after its grace")
            self._universe.tell("child_overdue", self.path)
            self._overdue = True
            self.kill()

    def _report(self) -> Steps:
        yield Wait((self.ended,), self._universe.clock.now + PATIENCE)
        if not self.ended.happened:
            self._under.see("unresponsive")
            self._universe.tell("child_unresponsive", self.path)

    def _happen(self, signal: Signal) -> None:
        self._universe.clock.happen(signal)

    def _notice_race(self) -> None:
        if self.guide is not None and self.guide.acts_at == self._universe.clock.now:
            self._universe.race = True

    def live(self) -> Steps:
        """The whole life."""
        if self._killed.happened:
            self._under.see("killed before its first step")
        elif self.guide is not None:
            yield from self._supervise(self.guide)
        else:
            yield from self._work()
        if self._killed.happened:  # one that had crashed says so (S38)
            self.reason = "crash" if self._overdue and self._crashed else "killed"
        self.ended_at = self._universe.clock.now
        self._give_back()
        if self.guide is not None:
            self._notice_race()
            self.guide.close(self.reason)
        self._happen(self.ended)
        self._happen(self.settled)
        self._under.hear(self)

    def _give_back(self) -> None:
        """A name is free before anybody learns of the end (M30)."""
        universe = self._universe
        del universe.places[self.path]
        if self.node.name is not None:
            universe.touch(self.node.name, self._under.path)
            del universe.names[self.node.name]

    def _supervise(self, guide: Guide) -> Steps:
        yield from guide.run()
        failed_start = guide.failed and not guide.served
        self.reason = "crash" if failed_start else "killed" if guide.killed else guide.reason or ""

    def _work(self) -> Steps:
        assert isinstance(self.node, Worker)
        life = self.node.life(self.number)
        interrupted = yield from self._starts(life)
        if not interrupted and self.reason == "":
            interrupted = yield from self._lasts(life)
        if interrupted:
            self.reason = "shutdown"
        self._begin_end()
        self._crashed = self.reason == "crash" and self.ready and not self.node.stubborn
        if self.node.stubborn:
            yield from self._clean_up(life, () if interrupted else None)
        else:
            yield from self._clean_up(life, (self._killed,) if self.ready else None)

    def _starts(self, life: Life) -> Generator[Wait, None, bool]:
        if life.start == "shielded":
            yield Wait((), self._universe.clock.now + self._length(life.after, "start"))
            asked = self._asked.happened or self._killed.happened
            self._universe.race |= asked and not self.given_up  # ready and ended in one instant
            self._become_ready()
            return False
        interrupted = yield from self._pause(life.after, "start")
        if not interrupted and life.start == "hangs":
            interrupted = yield from self._pause(None, "")
        if interrupted:
            return True
        if life.start == "ready":
            self._become_ready()
        self.ignored = life.start == "ignores"
        self.reason = {"fails": "crash", "ignores": "normal"}.get(life.start, "")
        return False

    def _lasts(self, life: Life) -> Generator[Wait, None, bool]:
        assert isinstance(self.node, Worker)
        ticks = None if life.lasts is None else max(1, life.lasts)
        interrupted = yield from self._pause(ticks, "life")
        self.reason = life.end
        if life.end == "interrupt" and not interrupted:
            self.reason = "shutdown"
            self._universe.race |= self.node.stubborn or not life.cleanup
            self._universe.interrupt()
        return interrupted

    def _clean_up(self, life: Life, heeded: tuple[Signal, ...] | None) -> Steps:
        """On a stop, a clean exit and a crash; not on a kill, but for what nobody can kill (S46, T10)."""
        if heeded is None or any(signal.happened for signal in heeded):
            return
        if life.cleanup:
            yield Wait(heeded, self._universe.clock.now + self._length(life.cleanup, "cleanup"))
        if life.spoiled:
            self.reason = "crash"

    def _pause(self, ticks: int | None, what: str) -> Generator[Wait, None, bool]:
        """Whether a stop or a kill came before the time was up."""
        both = (self._asked, self._killed)
        if ticks is None:
            yield Wait(both)
        elif ticks:
            yield Wait(both, self._universe.clock.now + self._length(ticks, what))
        return any(signal.happened for signal in both)

    def _length(self, ticks: int, what: str) -> float:
        return self._universe.program.moment(ticks, self.path, self.number, what)
