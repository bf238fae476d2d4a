import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_world import RAM


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where that exists: these tests commit often, and a busy disk is none of theirs."""
    folder = Path(tempfile.mkdtemp(dir=RAM))
    yield folder
    shutil.rmtree(folder)
