from __future__ import annotations

import pytest

from loadgen import paths
from loadgen.errors import InputError


def test_a_wrong_name_is_answered_by_names_that_work() -> None:
    with pytest.raises(InputError) as caught:
        paths.find("nothing-of-that-name")
    listed = str(caught.value).split("there are: ")[1].split(", ")
    assert "locustfiles/agent_loop.py" in listed
    assert all(paths.find(name).is_file() for name in listed)
    assert not any(name.split("/")[1].startswith(".") for name in listed)
