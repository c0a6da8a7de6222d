"""The doctor: every check on made-up machines, and this one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from octavo.cli import app
from octavo.doctor import _facts, checks, examine
from octavo.doctor._facts import Facts, collect
from octavo.plan.gpus import Gpu, Program
from octavo.plan.hardware import Hardware
from octavo.plan.speeds import Speeds

GB = 10**9
CARD = Gpu("RTX 4060 Ti", 8 * GB, 7_900_000_000, (8, 9), 4, 8, 288e9, 22e12, driver="580.95")
MACHINE = Hardware(
    memory_bytes=32 * GB,
    available_bytes=28 * GB,
    n_threads=8,
    isa="avx512",
    has_huge_pages=True,
    speeds=Speeds(50e9, 20e9, 2e12, 5e11),
    page_file_bytes=8 * GB,
)
SOUND = Facts(
    hardware=MACHINE,
    levels=("baseline", "avx2", "avx512"),
    models_dir=Path("models"),
    disk_free_bytes=100 * GB,
    governor="schedutil",
    huge_pages="madvise",
)
WITH_CARD = replace(
    SOUND,
    hardware=replace(MACHINE, gpus=(CARD,)),
    has_nvidia_device=True,
    torch="2.11.0+cu130",
    triton="3.6.0",
)


def of_machine(facts: Facts = SOUND, **changes: Any) -> Facts:
    return replace(facts, hardware=replace(facts.hardware, **changes))


def held(gpu: Gpu, *programs: Program, free: int = GB, **changes: Any) -> Facts:
    card = replace(gpu, free_bytes=free, programs=programs, **changes)
    return of_machine(WITH_CARD, gpus=(card,))


SLOW_MEMORY = Speeds(9e9, 5e9, 2e12, 5e11)
OLD_CARD = replace(CARD, name="GTX 1080", capability=(6, 1))

# check -> (facts, level, words of the text, words of the mending)
CASES: dict[str, list[tuple[Facts, str, str, str]]] = {
    "bandwidth": [
        (SOUND, "ok", "50 GB/s by 8 threads", ""),
        (of_machine(speeds=None), "ok", "not measured", ""),
        (of_machine(speeds=SLOW_MEMORY), "note", "9 GB/s", "second one"),
    ],
    "card": [
        (SOUND, "ok", "no NVIDIA card", ""),
        (WITH_CARD, "ok", "RTX 4060 Ti, 8.0 GB, driver 580.95, torch 2.11.0+cu130", ""),
        (replace(WITH_CARD, torch="", triton=""), "note", "no torch and no triton", "octavo[gpu]"),
        (replace(WITH_CARD, triton=""), "note", "no triton", "octavo[gpu]"),
        (replace(WITH_CARD, torch="2.11.0+cpu"), "wrong", "without CUDA", "torch"),
        (of_machine(WITH_CARD, gpus=(OLD_CARD,)), "note", "6.1", "processor"),
        (
            replace(SOUND, has_nvidia_device=True, gpu_fault="the driver does not answer: x"),
            "wrong",
            "does not answer: x",
            "driver",
        ),
        (replace(SOUND, has_nvidia_device=True), "wrong", "the driver lists none", "nvidia-smi"),
    ],
    "disk": [
        (SOUND, "ok", "100.0 GB free", ""),
        (replace(SOUND, disk_free_bytes=10 * GB), "note", "21 GB", "OCTAVO_MODELS"),
        (replace(SOUND, disk_free_bytes=GB), "wrong", "1.0 GB", "OCTAVO_MODELS"),
        (replace(SOUND, is_writable=False), "wrong", "cannot be written", "OCTAVO_MODELS"),
    ],
    "encoding": [
        (SOUND, "ok", "UTF-8", ""),
        (replace(SOUND, encoding="utf8"), "ok", "UTF-8", ""),
        (replace(SOUND, encoding="cp1252", platform="win32"), "note", "cp1252", "chcp 65001"),
        (replace(SOUND, encoding="ascii"), "note", "ascii", "LANG"),
    ],
    "formats": [
        (SOUND, "ok", "fast kernels", ""),
        (
            replace(SOUND, slow_formats={"m.gguf": ("iq1_m", "tq2_0")}),
            "note",
            "m.gguf: iq1_m, tq2_0",
            "Q4_K_M",
        ),
    ],
    "huge_pages": [
        (SOUND, "ok", "madvise", ""),
        (replace(SOUND, huge_pages="never"), "note", "switched off", "madvise"),
        (replace(SOUND, huge_pages="never", platform="win32"), "ok", "not used", ""),
    ],
    "memory": [
        (SOUND, "ok", "28.0 GB of 32.0 GB", ""),
        (
            replace(of_machine(available_bytes=8 * GB), big_programs=(("chrome", 12 * GB),)),
            "note",
            "chrome 12.0 GB",
            "Close",
        ),
        (of_machine(available_bytes=GB), "wrong", "1.0 GB of 32.0 GB", "small model"),
    ],
    "native": [
        (SOUND, "ok", "avx512, 8 threads", ""),
        (replace(SOUND, levels=()), "wrong", "missing", "again"),
        (
            replace(of_machine(isa="avx2"), asked_level="avx2"),
            "note",
            "avx512 (OCTAVO_ISA",
            "Unset",
        ),
        (replace(of_machine(isa="baseline"), levels=("baseline",)), "note", "AVX2", "virtual"),
    ],
    "page_file": [
        (SOUND, "ok", "8.0 GB", ""),
        (of_machine(page_file_bytes=0), "ok", "none", ""),
        (of_machine(page_file_bytes=0, memory_bytes=8 * GB), "note", "no swap", "swap file"),
        (
            of_machine(replace(SOUND, platform="win32"), page_file_bytes=0),
            "note",
            "no page file",
            "Virtual memory",
        ),
    ],
    "pinned": [
        (SOUND, "ok", "no card", ""),
        (of_machine(WITH_CARD, lock_limit_bytes=8 << 20), "ok", "8.4 MB", ""),
        (of_machine(WITH_CARD, pin_limit_bytes=16 * GB), "note", "16.0 GB, half", "Linux"),
        (of_machine(WITH_CARD, pin_limit_bytes=32 * GB), "ok", "32.0 GB", ""),
    ],
    "spill": [
        (SOUND, "ok", "no program", ""),
        (replace(WITH_CARD, borrowers=(("octavo", 9 * GB),)), "ok", "no program", ""),  # pinned
        (replace(held(CARD, free=GB // 4), borrowers=(("octavo", GB // 2),)), "ok", "no", ""),
        (
            replace(held(CARD, free=GB // 4), borrowers=(("octavo", 3 * GB), ("game", GB))),
            "note",
            "RTX 4060 Ti is full, and main memory stands in for it, ten times slower: "
            "octavo (3.0 GB)",
            "Sysmem Fallback",
        ),
    ],
    "thinking": [
        (SOUND, "ok", "keep what they thought", ""),
        (replace(SOUND, forgetful=("a.gguf", "b.gguf")), "note", "a.gguf, b.gguf", "octavo plan"),
    ],
    "port": [
        (SOUND, "ok", "8080 is free", ""),
        (replace(SOUND, port_fault="taken", port_holder="nginx"), "note", "nginx", "--port 8081"),
        (replace(SOUND, port_fault="taken"), "note", "is taken,", "--port 8081"),
        (replace(SOUND, port_fault="Permission denied"), "wrong", "Permission denied", "--port"),
    ],
    "power": [
        (SOUND, "ok", "schedutil", ""),
        (replace(SOUND, governor=""), "ok", "nothing", ""),
        (
            replace(SOUND, governor="powersave", frequency_driver="acpi-cpufreq"),
            "note",
            "powersave",
            "cpupower",
        ),
        (
            replace(SOUND, governor="powersave", frequency_driver="intel_pstate"),
            "ok",
            "powersave",
            "",
        ),
        (replace(SOUND, energy_preference="power"), "note", "energy", "balance"),
        (replace(SOUND, on_battery=True), "note", "battery", "Plug"),
        (replace(SOUND, is_power_saver=True), "note", "power saver", "powercfg"),
    ],
    "programs": [
        (SOUND, "ok", "no card", ""),
        (WITH_CARD, "ok", "7.9 GB of 8.0 GB free", ""),
        (
            held(CARD, Program("game.exe", None), Program("x", 2 * GB)),
            "note",
            "game.exe, x (2.0 GB)",
            "Close",
        ),
        (
            held(CARD, has_display=True),
            "note",
            "7.0 GB of RTX 4060 Ti are held by the desktop",
            "screen",
        ),
        (
            held(CARD, *(Program(f"p{i}", 1) for i in range(7))),
            "note",
            "p4 (1 B) and 2 more",
            "Close",
        ),
        (held(CARD), "note", "does not name", "Close"),
    ],
    "proxy": [
        (SOUND, "ok", "no proxy", ""),
        (replace(SOUND, proxies={"http": "http://p:3128"}), "ok", "p:3128; not used", ""),
        (
            replace(SOUND, proxies={"http": "http://u:secret@p:3128"}, bypasses_proxy=False),
            "wrong",
            "http p:3128 would",
            "NO_PROXY",
        ),
        (replace(SOUND, proxies={"https": "p"}, bypasses_proxy=False), "ok", "https p", ""),
        (replace(SOUND, proxies={"no": "x"}, bypasses_proxy=False), "ok", "no proxy", ""),
    ],
}


def test_every_check_has_cases() -> None:
    assert set(CASES) == set(checks())
    for name, cases in CASES.items():
        levels = {level for _, level, _, _ in cases}
        assert "ok" in levels, name
        assert levels - {"ok"}, name


@pytest.mark.parametrize(
    ("name", "facts", "level", "text", "mend"),
    [(name, *case) for name, cases in CASES.items() for case in cases],
)
def test_checks(name: str, facts: Facts, level: str, text: str, mend: str) -> None:
    finding = examine(facts)[name]
    assert finding.level == level, finding
    assert text in finding.text
    assert mend in finding.mend
    assert bool(finding.mend) == (level != "ok"), "what is not ok can be mended"
    assert "secret" not in finding.text


def test_a_sound_machine_is_sound() -> None:
    for facts in (SOUND, WITH_CARD):
        assert {finding.level for finding in examine(facts).values()} == {"ok"}


# This machine


def test_this_machine(own_home: Path, tiny_file: Callable[..., Path]) -> None:
    models = own_home / "models"
    models.mkdir(parents=True)
    (models / "tiny.gguf").write_bytes(tiny_file("llama").read_bytes())
    (models / "damaged.gguf").write_bytes(b"GGUF")
    facts = collect()
    assert facts.disk_free_bytes > 0
    assert facts.is_writable
    assert facts.models_dir == models
    assert facts.big_programs[0][1] > 0
    assert examine(facts).keys() == set(checks())
    assert not list(models.glob("tmp*"))


def test_a_taken_port_is_seen() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        facts = collect(port)
    assert (facts.port_fault, facts.port) == ("taken", port)
    assert f"port {port} is taken" in examine(facts)["port"].text


def test_a_folder_that_is_not_there_yet_counts_as_the_one_above(tmp_path: Path) -> None:
    assert _facts._existing(tmp_path / "a" / "b") == tmp_path


def test_the_word_in_brackets() -> None:
    assert _facts._chosen("always [madvise] never") == "madvise"
    assert _facts._chosen("") == ""


def test_slow_formats_are_found_in_files(
    tmp_path: Path, tiny_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.gguf").write_bytes(tiny_file("llama").read_bytes())
    monkeypatch.setattr(_facts, "fast_formats", lambda: frozenset({"q8_0"}))
    found = _facts._slow_formats(tmp_path)
    assert found["tiny.gguf"]
    assert "q8_0" not in found["tiny.gguf"]
    monkeypatch.setattr(_facts, "fast_formats", lambda: None)
    assert _facts._slow_formats(tmp_path) == {}


def test_templates_that_drop_thinking_are_found_in_files(
    tmp_path: Path, tiny_file: Callable[..., Path]
) -> None:
    for name, template in {
        "keeps.gguf": "{% for m in messages %}<think>{{ m.reasoning_content }}</think>{% endfor %}",
        "drops.gguf": "{% for m in messages %}{{ m.content }}{% endfor %}<think>",
        "plain.gguf": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }.items():
        path = tiny_file("llama", changes={"tokenizer.chat_template": template})
        (tmp_path / name).write_bytes(path.read_bytes())
    silent = tiny_file("qwen3", changes={"tokenizer.chat_template": ""})
    (tmp_path / "silent.gguf").write_bytes(silent.read_bytes())
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF")
    assert _facts._forgetful(tmp_path) == ("drops.gguf",)


def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert examine(collect())["proxy"].level == "wrong"
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    assert examine(collect())["proxy"].level == "ok"


@pytest.mark.parametrize(("facts", "code"), [(SOUND, 0), (replace(SOUND, levels=()), 1)])
def test_the_command(facts: Facts, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_facts, "collect", lambda port: replace(facts, port=port))
    shown = CliRunner().invoke(app, ["doctor", "--port", "9000"])
    assert shown.exit_code == code
    lines = shown.stdout.splitlines()
    assert any(line.split()[:2] == ["ok", "port"] and "9000" in line for line in lines)
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)
    assert found["wrong"] == code
    assert {row["check"] for row in found["findings"]} == set(checks())
    if code:
        wrong = next(row for row in found["findings"] if row["level"] == "wrong")
        assert wrong["mend"] in shown.stdout


@pytest.mark.parametrize("command", ["doctor", "plan"])
def test_looking_loads_no_torch(command: str, tiny_file: Callable[..., Path]) -> None:
    words = [command, *([str(tiny_file("llama"))] if command == "plan" else [])]
    code = f"from octavo.cli import app\ntry: app({words!r})\nexcept SystemExit: pass\n"
    code += "import sys; print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
