"""The commands as a person runs them: help, one good run, one error with its hint."""

from __future__ import annotations

import inspect
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from octavo import _native, cli, registry
from octavo.cli import _screen, perplexity, run
from octavo.cli._expand import expand
from octavo.cli._options import whole_numbers
from octavo.cli._reference import ReferenceWriter, Scored, logprobs, read_reference
from octavo.engine.engine import Engine
from octavo.errors import FileFormatError, RequestError, SettingError

COMMANDS = registry.names("cli")


@dataclass
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def octavo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """`octavo("run", "-p", "x", stdin="")`: one command, in this process."""

    def run(*arguments: str | Path, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["octavo", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def llama(tiny_file: Callable[..., Path]) -> Path:
    return tiny_file("llama")


# All commands


def test_help_lists_every_command(octavo: Callable[..., Done]) -> None:
    done = octavo("--help")
    assert done.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command(octavo: Callable[..., Done], name: str) -> None:
    done = octavo(name, "--help")
    assert done.code == 0
    assert registry.find("cli", name, "command").__doc__.splitlines()[0].split()[0] in done.out


def test_version(octavo: Callable[..., Done]) -> None:
    try:
        expected = metadata.version("octavo")
    except metadata.PackageNotFoundError:
        pytest.skip("octavo is not installed, only on the path")
    assert octavo("--version").out == f"octavo {expected}\n"


def test_unknown_command_and_flag(octavo: Callable[..., Done], llama: Path) -> None:
    assert octavo("rum").code == 2
    done = octavo("run", llama, "--tmp", "1")
    assert done.code == 2
    assert "--temp" in done.err


@pytest.mark.parametrize(
    "name", [n for n in COMMANDS if n not in ("doctor", "eval", "launch", "pull", "perplexity")]
)
def test_missing_file_has_message_hint_and_code(octavo: Callable[..., Done], name: str) -> None:
    done = octavo(name, "absent.gguf", stdin="text\n")
    assert done.code == 4
    assert done.err.startswith("octavo: ")
    assert "absent.gguf" in done.err
    assert done.out == ""


def test_no_gguf_file(octavo: Callable[..., Done], tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<!DOCTYPE html><html>")
    done = octavo("run", path, "-p", "x")
    assert done.code == 3
    assert "web page" in done.err


# run


def test_run_streams_answer_and_reports_speed(octavo: Callable[..., Done], llama: Path) -> None:
    done = octavo("run", llama, "-p", "Say it.", "-n", "7", "--temp", "0")
    assert done.code == 0
    assert done.out.endswith("\n")
    assert "tok/s" in done.err
    assert "first token after" in done.err


def test_run_answers_several_in_order(octavo: Callable[..., Done], llama: Path) -> None:
    flags = ("-n", "5", "--temp", "0", "--json")
    prompts = ["The river", "was low", "that summer"]
    done = octavo("run", "-m", llama, *flags, *(x for p in prompts for x in ("-p", p)))
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["prompt"] for row in rows] == prompts
    for row in rows:
        alone = json.loads(octavo("run", llama, *flags, "-p", row["prompt"]).out)
        assert alone["content"] == row["content"]
        assert row["timings"]["completion_tokens"] == 5
        assert row["finish_reason"] == "length"


def test_run_begins_fewer_prompts_at_once_than_may_wait(
    octavo: Callable[..., Done], llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = inspect.signature(Engine).parameters["max_waiting"].default
    assert waiting > run.MOST_BEGUN
    open_jobs: set[int] = set()
    most = 0

    def begun() -> Iterator[int]:
        for i in range(5 * run.MOST_BEGUN):
            open_jobs.add(i)
            yield i

    order = []
    for job in run._begun_ahead(begun()):
        most = max(most, len(open_jobs))
        open_jobs.remove(job)
        order.append(job)
    assert most == run.MOST_BEGUN
    assert order == list(range(5 * run.MOST_BEGUN))
    monkeypatch.setattr(run, "MOST_BEGUN", 2)
    flags = [part for i in range(7) for part in ("-p", str(i))]
    done = octavo("run", llama, "-n", "2", "--json", *flags)
    assert [json.loads(line)["prompt"] for line in done.out.splitlines()] == list("0123456")


def test_run_reads_standard_input_and_files(
    octavo: Callable[..., Done], llama: Path, tmp_path: Path
) -> None:
    flags = ("-n", "4", "--temp", "0", "--json")
    text = tmp_path / "text.txt"
    text.write_text("low that summer", encoding="utf-8")
    assert json.loads(octavo("run", llama, *flags, stdin="was low").out)["prompt"] == "was low"
    joined = json.loads(octavo("run", llama, *flags, "-p", "Was it?", "-f", text).out)["prompt"]
    piped = octavo("run", llama, *flags, "-p", "Was it?", "-f", "-", stdin="low that summer")
    assert joined == json.loads(piped.out)["prompt"] == "Was it?\n\nlow that summer"


def test_run_raw_continues_the_text(octavo: Callable[..., Done], llama: Path) -> None:
    flags = ("-n", "1", "--json")
    raw = json.loads(octavo("run", llama, "--raw", "-p", "The river", *flags).out)
    chat = json.loads(octavo("run", llama, "-p", "The river", *flags).out)
    assert raw["timings"]["prompt_tokens"] < chat["timings"]["prompt_tokens"]


def test_run_without_prompt_or_model(octavo: Callable[..., Done], llama: Path) -> None:
    assert octavo("run", llama).code == 2
    done = octavo("run", "-p", "x")
    assert done.code == 2
    assert "octavo run demo" in done.err


def test_run_names_wrong_values(octavo: Callable[..., Done], llama: Path) -> None:
    done = octavo("run", llama, "-p", "x", "--top-p", "7")
    assert done.code == 2
    assert "top_p is 7.0" in done.err
    assert octavo("run", llama, "-p", "x", "-f", "absent.txt").code == 4


def test_run_does_not_make_a_model_think(
    octavo: Callable[..., Done], tiny_file: Callable[..., Path]
) -> None:
    done = octavo("run", tiny_file("gemma3"), "-p", "x", "--think")
    assert done.code == 2
    assert "does not think" in done.err


def test_run_holds_to_a_schema(octavo: Callable[..., Done], llama: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": ["yes", "no"]}')
    done = octavo("run", llama, "-p", "Is it?", "--json-schema", schema, "-n", "30")
    assert json.loads(done.out) in ("yes", "no")


# chat


def test_chat_remembers_saves_and_loads(
    octavo: Callable[..., Done], llama: Path, tmp_path: Path
) -> None:
    saved = tmp_path / "talk.json"
    script = (
        f"Say it.\n/save {saved}\n/reset\n/load {saved}\nAgain\\\nplease.\n/save {saved}\n/quit\n"
    )
    done = octavo("chat", llama, "-n", "4", "--seed", "1", "--system", "Be brief.", stdin=script)
    assert done.code == 0
    talk = json.loads(saved.read_text(encoding="utf-8"))
    assert talk["system"] == "Be brief."
    assert [m["role"] for m in talk["messages"]] == ["user", "assistant"] * 2
    assert talk["messages"][2]["content"] == "Again\nplease."


def test_chat_commands(octavo: Callable[..., Done], llama: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("low water", encoding="utf-8")
    saved = tmp_path / "talk.json"
    lines = ["/help", "/nonsense", "/think maybe", f"/load {note}", f"/file {note}"]
    lines += ['"""one', 'two"""', f"/save {saved}"]
    done = octavo("chat", llama, "-n", "2", stdin="\n".join(lines) + "\n")
    assert done.code == 0  # the end of input ends the chat
    assert "/reset" in done.err
    assert "There is no command /nonsense" in done.err
    assert "/think maybe is not known" in done.err
    assert "holds no conversation" in done.err
    first = json.loads(saved.read_text(encoding="utf-8"))["messages"][0]["content"]
    assert first == "note.txt:\n```\nlow water\n```\n\none\ntwo"


def test_chat_says_when_the_context_is_full(octavo: Callable[..., Done], llama: Path) -> None:
    done = octavo("chat", llama, "-c", "64", "-n", "2", stdin="river " * 100 + "\n")
    assert done.code == 0
    assert "--ctx-size" in done.err


def test_chat_keeps_what_was_said_before_ctrl_c(
    octavo: Callable[..., Done], llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "talk.json"

    def interrupted(events: Iterator[object]) -> None:
        next(events)
        raise KeyboardInterrupt

    monkeypatch.setattr(_screen, "show", interrupted)
    done = octavo("chat", llama, stdin=f"Say it.\n/save {saved}\n")
    assert done.code == 0
    assert "(stopped)" in done.err
    assert len(json.loads(saved.read_text(encoding="utf-8"))["messages"]) == 2


# embed


def test_embed(octavo: Callable[..., Done], tiny_file: Callable[..., Path]) -> None:
    path = tiny_file("qwen3", changes={"pooling_type": 3})
    done = octavo("embed", path, "--json", "The river", "was low")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["text"] for row in rows] == ["The river", "was low"]
    assert np.linalg.norm(rows[1]["embedding"]) == pytest.approx(1, abs=1e-5)
    piped = octavo("embed", path, "--dimensions", "8", stdin="The river\nwas low\n")
    numbers = np.array([[float(x) for x in line.split()] for line in piped.out.splitlines()])
    assert numbers.shape == (2, 8)
    cut = np.array(rows[0]["embedding"][:8])
    np.testing.assert_allclose(numbers[0], cut / np.linalg.norm(cut), atol=1e-5)
    assert octavo("embed", path).code == 2


# bench


def test_bench_last_line_is_json(octavo: Callable[..., Done], llama: Path) -> None:
    flags = ("-p", "8,16", "-n", "4", "-d", "0,70", "-r", "2", "--cache-format", "f16,q8_0")
    done = octavo("bench", llama, *flags)
    results = json.loads(done.out.splitlines()[-1])["results"]
    expected = [f"{kind}{d}" for d in ("", "@70") for kind in ("pp8", "pp16", "tg4")]
    assert [row["test"] for row in results] == expected * 2
    assert len(done.out.splitlines()) == 1 + len(results) + 1
    assert all(len(row["runs"]) == 2 and row["tokens_per_second"] > 0 for row in results)
    tg, tg_deep = (row for row in results[:6] if row["test"].startswith("tg"))
    assert tg_deep["bytes_per_token"] > tg["bytes_per_token"]
    assert results[5]["bytes_per_token"] > results[11]["bytes_per_token"]  # q8_0 is smaller


def test_bench_of_several_sequences(octavo: Callable[..., Done], llama: Path) -> None:
    done = octavo("bench", llama, "-p", "0", "-n", "4", "-np", "1,3", "-r", "1")
    one, three = json.loads(done.out.splitlines()[-1])["results"]
    assert (one["test"], three["test"]) == ("tg4", "tg4x3")
    assert three["tokens_per_second"] > 0
    assert three["bytes_per_token"] is None


def test_bench_refuses_nonsense(octavo: Callable[..., Done], llama: Path) -> None:
    assert octavo("bench", llama, "-p", "many").code == 2
    assert octavo("bench", llama, "-np", "0").code == 2
    assert octavo("bench", llama, "-p", "100000").code == 2
    assert "--device gpu" in octavo("bench", llama, "-p", "8", "-n", "2", "--profile").err


@pytest.mark.parametrize("text", ["", "1,,2", "-1", "1.5", "x"])
def test_lists_of_numbers(text: str) -> None:
    assert whole_numbers("-p", "512, 2048") == [512, 2048]
    with pytest.raises(SettingError, match="-p"):
        whole_numbers("-p", text)


# perplexity


def test_perplexity_and_reference(
    octavo: Callable[..., Done], tiny_file: Callable[..., Path], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The river was low, and the ferry waited. " * 7, encoding="utf-8")
    reference = tmp_path / "reference"
    flags = ("-f", text, "--context", "33", "--json")
    exact, other = tiny_file("llama", types="f32"), tiny_file("llama", types="q4_0")
    first = json.loads(octavo("perplexity", exact, *flags, "--save-reference", reference).out)
    same = json.loads(octavo("perplexity", exact, *flags, "--reference", reference).out)
    rounded = json.loads(octavo("perplexity", other, *flags, "--reference", reference).out)
    assert first["perplexity"] == same["perplexity"] != rounded["perplexity"]
    assert first["scored_tokens"] == first["windows"] * 16
    assert 0 <= same["kld_mean"] < 1e-6
    assert same["same_top"] > 0.99
    assert rounded["kld_mean"] > 1e-4
    assert rounded["kld_99.9"] >= rounded["kld_median"] > 0
    assert (
        octavo("perplexity", exact, "-f", text, "--context", "32", "--reference", reference).code
        == 3
    )
    assert octavo("perplexity", exact, "-f", text, "--context", "5000").code == 2


def test_perplexity_against_plain_arithmetic() -> None:
    random = np.random.default_rng(3)
    logits = random.normal(0, 3, (33, 57)).astype(np.float32)
    targets = random.integers(0, 57, 33)
    tally = perplexity.Tally()
    rows = perplexity.log_softmax(logits)
    for start in (0, 1, 8):
        stop = {0: 1, 1: 8, 8: 33}[start]
        tally.add(rows[start:stop], targets[start:stop])
    wide = logits.astype(np.float64)
    probabilities = np.exp(wide) / np.exp(wide).sum(axis=1, keepdims=True)
    expected = np.exp(-np.log(probabilities[np.arange(33), targets]).mean())
    assert tally.figures()["perplexity"] == pytest.approx(expected, rel=1e-4)


def test_windows() -> None:
    ids = list(range(100, 117))
    assert perplexity.cut(ids, 8, None) == [ids[:8], ids[8:16]]
    assert perplexity.cut(ids, 8, 1) == [[1, *ids[1:8]], [1, *ids[9:16]]]
    assert list(perplexity.scored_positions(8)) == [4, 5, 6]
    with pytest.raises(RequestError, match="17 tokens"):
        perplexity.cut(ids, 18, None)


def test_reference_file_is_checked(tmp_path: Path) -> None:
    path, scored = tmp_path / "reference", Scored.of([1, 2, 3], 4, 2, 5)
    rows = np.log(np.full((2, 5), 0.2, np.float32))
    rows[0, 0] = -1e9
    writer = ReferenceWriter(path, scored)
    writer.add(rows)
    assert not path.exists()
    writer.close()
    read = logprobs(read_reference(path, scored))
    np.testing.assert_allclose(read[1], rows[1], atol=1 / 4096)
    assert read[0, 0] < -31
    with pytest.raises(FileFormatError, match="context"):
        read_reference(path, Scored.of([1, 2, 3], 8, 2, 5))
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(FileFormatError, match="cut off"):
        read_reference(path, scored)
    path.write_bytes(b"GGUF\x00\xff")
    with pytest.raises(FileFormatError, match="not a reference"):
        read_reference(path, scored)


# The frame around the commands


@dataclass
class Pair:
    left: int = 1
    right: int = 2


def with_pair(pair: Pair, name: str, *, last: bool = False) -> tuple[Pair, str, bool]:
    return pair, name, last


def test_flag_groups_expand() -> None:
    expanded = expand(with_pair)
    assert list(expanded.__annotations__) == ["left", "right", "name", "last"]
    assert expanded(left=5, right=2, name="n", last=True) == (Pair(5, 2), "n", True)


def test_as_a_process(llama: Path) -> None:
    """UTF-8 whatever the locale says, and a reader that goes away is no error."""
    command = [sys.executable, "-m", "octavo", "inspect", str(llama), "--tensors"]
    environment = os.environ | {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True)
    assert done.returncode == 0
    assert "Ġ".encode() not in done.stderr
    done.stdout.decode("utf-8")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == cli.BROKEN_PIPE


LEAVING = """
import atexit, threading, time
from octavo.__main__ import program

def late():
    time.sleep(0.5)
    print("thread")
    atexit.register(print, "closed")

threading.Thread(target=late).start()
program()
"""


@pytest.mark.parametrize(("file", "code"), [(None, 0), ("absent.gguf", 4)])
def test_a_program_ends_when_all_is_done(llama: Path, file: str | None, code: int) -> None:
    """Threads have ended by then, and what they left to be done at the end is done."""
    command = [sys.executable, "-c", LEAVING, "inspect", file or str(llama)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-2:] == ["thread", "closed"]
    assert ("absent.gguf" in done.stderr) == bool(code)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are another matter on Windows")
def test_interrupt_ends_with_130(llama: Path) -> None:
    # Long work, which has begun when the first letter comes.
    prompts = ["-p", "x"] * 40
    flags = ["--raw", "--ignore-eos", "-np", "1"]
    command = [sys.executable, "-m", "octavo", "run", str(llama), *flags, *prompts]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Whoever runs the tests in the background may have them ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == cli.INTERRUPTED
        assert b"Traceback" not in errors


@pytest.mark.parametrize("name", _native.levels())
def test_the_instruction_set_asked_for_is_used(llama: Path, name: str) -> None:
    program = (
        "import octavo, sys; from octavo.ops import cpu;"
        "octavo.load(sys.argv[1], threads=2).close(); print(cpu.level())"
    )
    command = [sys.executable, "-c", program, str(llama)]
    done = subprocess.run(command, env=os.environ | {"OCTAVO_ISA": name}, capture_output=True)
    assert done.stdout.decode().strip() == name, done.stderr.decode()
