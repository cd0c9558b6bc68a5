"""JSON and TOML files as editors on Windows write them, with a byte order mark."""

from __future__ import annotations

from pathlib import Path

from transept.json_files import read_json
from transept.serving.configuration import read_settings

MARK = b"\xef\xbb\xbf"


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(MARK + b'{"d_model": 4}')
    assert read_json(tmp_path / "config.json") == {"d_model": 4}
    (tmp_path / "keys").write_bytes(MARK + b"secret\n")
    (tmp_path / "server.toml").write_bytes(MARK + b'models = ["m"]\napi_key_file = "keys"')
    assert read_settings({}, {"TRANSEPT_CONFIG": str(tmp_path / "server.toml")}).api_keys == ("secret",)
