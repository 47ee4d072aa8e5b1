"""Supervisors, and what they run as children: actors, functions, tasks, partitions, programs, scheduled jobs."""

from __future__ import annotations

from proctor.runtime.supervision.backoff import delay as delay
from proctor.runtime.supervision.dynamic import DynamicSupervisor as DynamicSupervisor
from proctor.runtime.supervision.dynamic import dynamic_supervisor_spec as dynamic_supervisor_spec
from proctor.runtime.supervision.dynamic import open_dynamic_supervisor as open_dynamic_supervisor
from proctor.runtime.supervision.handles import AnySupervisor as AnySupervisor
from proctor.runtime.supervision.handles import Supervisor as Supervisor
from proctor.runtime.supervision.partition import PartitionSupervisor as PartitionSupervisor
from proctor.runtime.supervision.partition import open_partition_supervisor as open_partition_supervisor
from proctor.runtime.supervision.partition import partition_supervisor_spec as partition_supervisor_spec
from proctor.runtime.supervision.program import plain_environment as plain_environment
from proctor.runtime.supervision.program import process as process
from proctor.runtime.supervision.root import kill_roots as kill_roots
from proctor.runtime.supervision.routing import PartitionStatistics as PartitionStatistics
from proctor.runtime.supervision.schedule import scheduled as scheduled
from proctor.runtime.supervision.supervisor import NestedSupervisor as NestedSupervisor
from proctor.runtime.supervision.supervisor import open_supervisor as open_supervisor
from proctor.runtime.supervision.supervisor import supervisor_spec as supervisor_spec
from proctor.runtime.supervision.task import Task as Task
from proctor.runtime.supervision.task_stream import TaskExit as TaskExit
from proctor.runtime.supervision.task_stream import TaskResult as TaskResult
from proctor.runtime.supervision.task_stream import TaskStream as TaskStream
from proctor.runtime.supervision.tasks import TaskSupervisor as TaskSupervisor
from proctor.runtime.supervision.tasks import open_task_supervisor as open_task_supervisor
from proctor.runtime.supervision.tasks import task_supervisor_spec as task_supervisor_spec
from proctor.runtime.supervision.tree import Interrupt as Interrupt
from proctor.runtime.supervision.tree import interrupt_in as interrupt_in
