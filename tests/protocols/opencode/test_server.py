from __future__ import annotations

import json

import pytest

from proctor.protocols.opencode.launch import CONFIG, PASSWORD
from proctor.protocols.opencode.serve.launch import address_in, server_command


def config_of(named: dict[str, str]) -> str:
    return server_command(("opencode",), named, "pw", 0).env[CONFIG]


def test_it_listens_on_this_machine_alone_and_with_a_password() -> None:
    command = server_command(("/bin/opencode",), {}, "pw", 0)
    assert command.argv == ("/bin/opencode", "serve", "--hostname=127.0.0.1", "--port=0")
    assert command.env[PASSWORD] == "pw"
    assert "pw" not in command.argv


def test_it_asks_before_what_changes_anything_and_goes_on_after_a_denial() -> None:
    config = json.loads(config_of({}))
    assert (config["permission"]["*"], config["permission"]["read"]) == ("ask", "allow")
    assert config["experimental"] == {"continue_loop_on_deny": True}


def test_what_its_owner_named_wins_key_by_key() -> None:
    config = json.loads(config_of({CONFIG: json.dumps({"model": "p/m", "permission": {"bash": "allow"}})}))
    assert (config["model"], config["share"]) == ("p/m", "disabled")
    assert (config["permission"]["bash"], config["permission"]["*"]) == ("allow", "ask")


@pytest.mark.parametrize("named", ["{", "[]", '"x"'])
def test_a_configuration_that_is_none_is_for_the_server_to_refuse(named: str) -> None:
    assert config_of({CONFIG: named}) == named


@pytest.mark.parametrize(
    ("said", "address"),
    [
        (b"Warning: x\nopencode server listening on http://127.0.0.1:4096\n", "http://127.0.0.1:4096"),
        (b"opencode server listening on http://127.0.0.1:40", None),
        (b"listening on nothing\n", None),
        (b"", None),
    ],
)
def test_its_address_is_in_a_whole_line(said: bytes, address: str | None) -> None:
    assert address_in(said) == address
