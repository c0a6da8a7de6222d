"""`octavo launch` with clients that only write down how they were run, and make one request."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.cli._clients import CLIENTS, ClientName, Target
from octavo.server.guard import Rules
from serving import END, PLAIN, ScriptedSession, serving

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the clients here are scripts")

CLIENT = """\
#!{python}
import json, os, sys, httpx
env = dict(os.environ)
name = os.path.basename(sys.argv[0])
if name == "claude":
    url = env["ANTHROPIC_BASE_URL"] + "/v1/messages"
    model, key = env["ANTHROPIC_MODEL"], env["ANTHROPIC_AUTH_TOKEN"]
    body = {{"messages": [{{"role": "user", "content": "Hi"}}], "max_tokens": 9}}
elif name == "codex":
    pairs = [a.partition("=") for a in sys.argv if "=" in a]
    values = {{key: json.loads(value) for key, _, value in pairs}}
    url = values["model_providers.octavo.base_url"] + "/responses"
    model, key = values["model"], env[values["model_providers.octavo.env_key"]]
    body = {{"input": "Hi"}}
else:
    config = json.loads(env["OPENCODE_CONFIG_CONTENT"])
    url = config["provider"]["octavo"]["options"]["baseURL"] + "/chat/completions"
    model, key = config["model"].partition("/")[2], env["OCTAVO_API_KEY"]
    body = {{"messages": [{{"role": "user", "content": "Hi"}}]}}
body |= {{"model": model}}
head = {{"Authorization": "Bearer " + key}}
answer = httpx.post(url, json=body, headers=head, timeout=60, trust_env=False)
record = {{"env": env, "argv": sys.argv[1:], "status": answer.status_code, "text": answer.text}}
open({record!r}, "w").write(json.dumps(record))
sys.exit(7)
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clients in a PATH of their own; the file that they write."""
    folder, record = tmp_path / "bin", tmp_path / "record.json"
    folder.mkdir()
    for name in ClientName:
        script = folder / name.value
        script.write_text(CLIENT.format(python=sys.executable, record=str(record)))
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for name in ("OCTAVO_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return record


def launch(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "octavo", "launch", *arguments]
    environment = os.environ | variables
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("client", list(ClientName))
def test_the_client_reaches_the_server(client: ClientName, record: Path) -> None:
    session = ScriptedSession(PLAIN, "Hello." + END, context=4096)
    with serving(session, Rules(keys=("secret",))) as address:
        done = launch(
            client, "--address", f"{address}/", "--", "-p", "a b",
            OCTAVO_API_KEY="secret", ANTHROPIC_API_KEY="other", CLAUDE_CODE_USE_BEDROCK="1",
        )  # fmt: skip
    assert done.returncode == 7, done.stderr  # the client's own
    seen = json.loads(record.read_text())
    assert seen["status"] == 200
    assert "Hello." in seen["text"]
    assert seen["argv"][-2:] == ["-p", "a b"]
    assert session.asked
    if client == "claude":
        env = seen["env"]
        assert env["ANTHROPIC_API_KEY"] == ""
        assert "CLAUDE_CODE_USE_BEDROCK" not in env
        assert env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "4096"
        assert env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "1024"
        assert env["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"


@pytest.mark.parametrize("client", list(ClientName))
def test_a_dry_run_prints_what_a_shell_would_do(client: ClientName, record: Path) -> None:
    with serving(ScriptedSession(PLAIN, "Hello." + END, context=4096)) as address:
        shown = launch(client, "--address", address, "--dry-run", "--", "-p", "a b")
        assert shown.returncode == 0, shown.stderr
        assert not record.exists()
        # The lines, run by a shell, do what the command does.
        subprocess.run(["/bin/sh", "-c", shown.stdout], check=False, timeout=60)
        by_shell = json.loads(record.read_text())
        launch(client, "--address", address, "--", "-p", "a b")
    by_launch = json.loads(record.read_text())
    assert by_shell["argv"] == by_launch["argv"]
    setup = CLIENTS[client].setup(Target(address, "scripted", 4096, "octavo"))
    for name, value in setup.variables.items():
        assert by_shell["env"][name] == by_launch["env"][name] == value


def test_a_dry_run_shows_no_key(record: Path) -> None:
    with serving(ScriptedSession(PLAIN), Rules(keys=("secret",))) as address:
        done = launch("claude", "--address", address, "--dry-run", OCTAVO_API_KEY="secret")
    assert 'ANTHROPIC_AUTH_TOKEN="$OCTAVO_API_KEY"' in done.stdout
    assert "secret" not in done.stdout


def test_a_server_is_started_and_stopped(record: Path, tiny_file: Callable[..., Path]) -> None:
    model, address = str(tiny_file("llama")), free_address()
    start = ("claude", "--address", address, "--start", model, "--ctx-size", "128")
    shown = launch(*start, "--dry-run")
    assert f"serve {model} --host 127.0.0.1" in shown.stdout
    done = launch(*start)
    assert done.returncode == 7, done.stderr
    seen = json.loads(record.read_text())
    assert seen["status"] == 200, seen["text"]
    assert seen["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "128"
    again = launch("claude", "--address", address)
    assert "no server answers" in again.stderr  # it went with the client


def test_a_server_that_cannot_start_says_why(record: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    done = launch("codex", "--address", free_address(), "--start", str(broken))
    assert done.returncode == 1
    assert "the server ended" in done.stderr
    assert "broken.gguf" in done.stderr
    assert not record.exists()


FAULTS: list[tuple[tuple[str, ...], int, str]] = [
    (("--address", "http://127.0.0.1:1"), 4, "octavo serve MODEL"),
    (("--address", "http://127.0.0.1:1/x", "--start", "demo"), 2, "one of this computer"),
    (("--model", "other"), 4, "It has scripted."),
]


@pytest.mark.parametrize(("flags", "code", "words"), FAULTS)
def test_faults(flags: tuple[str, ...], code: int, words: str, record: Path) -> None:
    with serving(ScriptedSession(PLAIN)) as address:
        done = launch("codex", *(() if "--address" in flags else ("--address", address)), *flags)
    assert done.returncode == code
    assert words in done.stderr
    assert not record.exists()


def test_a_missing_client_says_how_to_get_it(tmp_path: Path) -> None:
    done = launch("opencode", PATH=str(tmp_path))
    assert done.returncode == 4
    assert "npm install -g opencode-ai" in done.stderr


def test_a_wrong_key_is_told(record: Path) -> None:
    with serving(ScriptedSession(PLAIN), Rules(keys=("secret",))) as address:
        done = launch("claude", "--address", address, OCTAVO_API_KEY="wrong")
    assert done.returncode == 2
    assert "OCTAVO_API_KEY" in done.stderr
