"""A key of secret thresholds is private, never quoted, and in nothing that is written."""

from __future__ import annotations

import os

import pyarrow.parquet as pq
import pytest

from conftest import trip_table
from flowveil.apps import cli
from flowveil.core.errors import OutputError, ParameterError
from flowveil.core.secret_key import create_key, read_key


@pytest.fixture
def key(tmp_path):
    create_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_key_files_are_private_and_never_quoted(key, tmp_path):
    secret = key.read_text()
    assert key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(OutputError, match="never overwritten"):
        create_key(key)
    bad = tmp_path / "bad"
    cases = [
        (secret, 0o640, "read by others"),
        (secret[:40], 0o600, "64 hexadecimal"),
        ("ab" * 32, 0o600, "at random"),
    ]
    for content, mode, match in cases:
        bad.write_text(content)
        bad.chmod(mode)
        with pytest.raises(ParameterError, match=match) as caught:
            read_key(bad)
        assert content.strip() not in str(caught.value)
    with pytest.raises(ParameterError, match="cannot be read"):
        read_key(tmp_path / "none")


def test_the_key_is_in_no_file_and_no_output(key, tmp_path, capfd):
    pq.write_table(trip_table(600), tmp_path / "trips.parquet")
    out = tmp_path / "out"
    call = ["anonymize", f"{tmp_path}/trips.parquet", "--k", "5", "--resolution", "8"]
    assert cli.main([*call, "--key-file", f"{key}", "--out", f"{out}"]) in (None, 0)
    digits = key.read_text().strip()
    written = b"".join(path.read_bytes() for path in out.iterdir())
    said = "".join(capfd.readouterr())
    for spelling in (digits, digits.upper(), read_key(key).fingerprint):
        assert spelling.encode() not in written
        assert spelling not in said
    assert bytes.fromhex(digits) not in written
