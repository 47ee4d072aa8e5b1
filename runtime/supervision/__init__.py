"""Supervisors, and what they run as children: actors, functions, tasks, partitions, programs, scheduled jobs."""

from __future__ import annotations

from proctor.runtime.supervision.backoff import delay
from proctor.runtime.supervision.dynamic import (
    DynamicSupervisor,
    dynamic_supervisor_spec,
    open_dynamic_supervisor,
)
from proctor.runtime.supervision.handles import AnySupervisor, Supervisor
from proctor.runtime.supervision.partition import (
    PartitionSupervisor,
    open_partition_supervisor,
    partition_supervisor_spec,
)
from proctor.runtime.supervision.program import plain_environment, process
from proctor.runtime.supervision.root import kill_roots
from proctor.runtime.supervision.routing import PartitionStatistics
from proctor.runtime.supervision.schedule import scheduled
from proctor.runtime.supervision.supervisor import NestedSupervisor, open_supervisor, supervisor_spec
from proctor.runtime.supervision.task import Task
from proctor.runtime.supervision.task_stream import TaskExit, TaskResult, TaskStream
from proctor.runtime.supervision.tasks import TaskSupervisor, open_task_supervisor, task_supervisor_spec
from proctor.runtime.supervision.tree import Interrupt, interrupt_in

__all__ = [
    "AnySupervisor",
    "DynamicSupervisor",
    "Interrupt",
    "NestedSupervisor",
    "PartitionStatistics",
    "PartitionSupervisor",
    "Supervisor",
    "Task",
    "TaskExit",
    "TaskResult",
    "TaskStream",
    "TaskSupervisor",
    "delay",
    "dynamic_supervisor_spec",
    "interrupt_in",
    "kill_roots",
    "open_dynamic_supervisor",
    "open_partition_supervisor",
    "open_supervisor",
    "open_task_supervisor",
    "partition_supervisor_spec",
    "plain_environment",
    "process",
    "scheduled",
    "supervisor_spec",
    "task_supervisor_spec",
]
