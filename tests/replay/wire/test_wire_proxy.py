from __future__ import annotations

import pytest

from loadgen.errors import InputError
from loadgen.replay.wire.proxy import choose
from loadgen.replay.wire.target import Target

REMOTE = Target.parse("http://gpu.example.com:8000")
SET = {"http_proxy": "http://proxy:3128"}


@pytest.mark.parametrize("environment", [SET, {"HTTP_PROXY": "http://p"}, {"ALL_PROXY": "http://p"}])
def test_a_proxy_that_nobody_asked_for_is_refused(environment: dict[str, str]) -> None:
    with pytest.raises(InputError, match="is set, and a proxy changes what is measured"):
        choose(REMOTE, None, environment)


def test_only_those_that_apply() -> None:
    assert choose(REMOTE, None, {"https_proxy": "http://p"}) is None
    assert choose(REMOTE, None, SET | {"no_proxy": ".example.com"}) is None
    assert choose(REMOTE, None, SET | {"NO_PROXY": "*"}) is None
    assert choose(REMOTE, None, {"http_proxy": ""}) is None
    assert choose(Target.parse("http://127.0.0.1:8000"), None, SET) is None


def test_the_one_that_was_asked_for() -> None:
    assert choose(REMOTE, "proxy:3128", SET) == Target.parse("http://proxy:3128")
    with pytest.raises(InputError, match="not a proxy"):
        choose(REMOTE, "https://proxy:3128", {})
