"""The tasks of Transept for asyncio: ``await AsyncTranscriber.load("base")``.

Exports what `transept.serving` defines, and defines nothing itself. Importing it loads torch.
"""

from transept.serving.async_engine import AsyncEngine
from transept.serving.async_live import AsyncLiveStream
from transept.serving.async_tasks import AsyncSegmentStream, AsyncTextGenerator, AsyncTranscriber, AsyncVisionReader

__all__ = [
    "AsyncEngine",
    "AsyncLiveStream",
    "AsyncSegmentStream",
    "AsyncTextGenerator",
    "AsyncTranscriber",
    "AsyncVisionReader",
]
