"""What a test leaves of a transcriber: nothing under way, all of the cache free."""

from transept import Transcriber


def assert_idle(transcriber: Transcriber) -> None:
    engine = transcriber.engine
    assert not engine.has_unfinished_requests
    engine.block_manager.check_integrity()
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
