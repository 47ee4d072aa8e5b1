"""A bridge between Trio and programs that do not run it: one thread with a Trio loop, and two ways across.

`TrioThread.submit` carries a call over, with its cancellation; `Pump` carries a stream, in batches and with a limit on what is not read
yet. The asyncio face (`asyncio_face`) and the face for plain code (`sync_face`) are made of these two. Knows nothing of agents.
"""

from proctor.bridge.errors import BridgeClosed as BridgeClosed
from proctor.bridge.errors import BridgeError as BridgeError
from proctor.bridge.errors import CallerGone as CallerGone
from proctor.bridge.errors import WrongFace as WrongFace
from proctor.bridge.trio_thread import TrioThread as TrioThread
