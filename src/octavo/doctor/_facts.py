"""What the checks look at, collected once. Each part that cannot be looked at is left empty."""

from __future__ import annotations

import contextlib
import errno
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import psutil

from octavo.errors import OctavoError
from octavo.gguf.reader import open_gguf
from octavo.plan.borrowed import borrowed_bytes
from octavo.plan.gpus import look
from octavo.plan.hardware import Hardware, fast_formats, probe
from octavo.plan.thinking import forgets
from octavo.record import dataclass
from octavo.settings import Settings

DEFAULT_PORT = 8080  # of `octavo serve`
_MOST_FILES = 12  # model files that are looked into
_PROGRAMS = 3
_WINDOWS_POWER_SAVER = "a1841308-3541-4fab-bc81-f71556f20b4a"
_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@dataclass(frozen=True)
class Facts:
    """One machine at one moment."""

    hardware: Hardware
    platform: str = "linux"  # as sys.platform
    gpu_fault: str = ""  # why the driver's library says nothing
    has_nvidia_device: bool = False
    levels: tuple[str, ...] = ()  # instruction sets of the native core; (): it did not load
    asked_level: str = ""  # OCTAVO_ISA
    slow_formats: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by model file
    forgetful: tuple[str, ...] = ()  # model files whose templates drop earlier thinking
    borrowers: tuple[tuple[str, int], ...] = ()  # main memory that cards use for them, on Windows
    big_programs: tuple[tuple[str, int], ...] = ()  # name, bytes of memory
    models_dir: Path = Path()
    disk_free_bytes: int = 0
    is_writable: bool = True
    encoding: str = "utf-8"  # of standard output, before we changed it
    port: int = DEFAULT_PORT
    port_fault: str = ""  # "" : free
    port_holder: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict)
    bypasses_proxy: bool = True  # for 127.0.0.1
    governor: str = ""
    frequency_driver: str = ""
    energy_preference: str = ""
    is_power_saver: bool = False  # Windows' power plan
    on_battery: bool = False
    huge_pages: str = ""  # always, madvise or never; "": not known
    torch: str = ""  # versions; "": not installed
    triton: str = ""


def collect(port: int = DEFAULT_PORT) -> Facts:
    """Look at this machine. Takes a second or two, and measures memory at the first time."""
    settings = Settings.from_environment()
    hardware = probe(measure=True)
    folder = _existing(settings.models_dir)
    fault, holder = _port(port)
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return Facts(
        hardware=hardware,
        platform=sys.platform,
        gpu_fault=look()[1],
        has_nvidia_device=Path("/dev/nvidiactl").exists() or bool(shutil.which("nvidia-smi")),
        levels=_levels(),
        asked_level=settings.isa,
        slow_formats=_slow_formats(settings.models_dir),
        forgetful=_forgetful(settings.models_dir),
        borrowers=_borrowers(),
        big_programs=_big_programs(),
        models_dir=settings.models_dir,
        disk_free_bytes=shutil.disk_usage(folder).free,
        is_writable=_is_writable(folder),
        encoding=_encoding(),
        port=port,
        port_fault=fault,
        port_holder=holder,
        proxies=getproxies(),
        bypasses_proxy=bool(proxy_bypass("127.0.0.1")),
        governor=_line(_CPU / "scaling_governor"),
        frequency_driver=_line(_CPU / "scaling_driver"),
        energy_preference=_line(_CPU / "energy_performance_preference"),
        is_power_saver=_is_power_saver(),
        on_battery=bool(battery and not battery.power_plugged),
        huge_pages=_chosen(_line(_HUGE_PAGES)),
        torch=_version("torch"),
        triton=_version("triton") or _version("triton-windows"),
    )


def _levels() -> tuple[str, ...]:
    try:
        from octavo import _native
    except ImportError:
        return ()
    return tuple(_native.levels())


def _newest(folder: Path) -> list[Path]:
    """The newest model files."""
    files = folder.rglob("*.gguf") if folder.is_dir() else ()
    return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[:_MOST_FILES]


def _slow_formats(folder: Path) -> dict[str, tuple[str, ...]]:
    """Of the newest model files, the matrix formats without a fast kernel."""
    fast = fast_formats()
    if fast is None:
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for path in _newest(folder):
        with contextlib.suppress(OctavoError), open_gguf(path) as file:
            used = {t.type_name for t in file.tensors.values() if len(t.shape) > 1}
            if slow := used - fast:
                found[path.name] = tuple(sorted(slow))
    return found


def _forgetful(folder: Path) -> tuple[str, ...]:
    """Of the newest model files, those that think and cannot keep it for later turns."""
    found = []
    for path in _newest(folder):
        with contextlib.suppress(OctavoError), open_gguf(path) as file:
            if forgets(file.metadata):
                found.append(path.name)
    return tuple(found)


def _borrowers() -> tuple[tuple[str, int], ...]:
    """Programs for which cards use main memory, and how much; the largest first."""
    found = []
    for pid, n_bytes in borrowed_bytes().items():
        with contextlib.suppress(psutil.Error):  # it has ended
            found.append((str(psutil.Process(pid).name()), n_bytes))
    return tuple(sorted(found, key=lambda pair: -pair[1]))


def _big_programs() -> tuple[tuple[str, int], ...]:
    """The programs that hold most memory, all processes of a name together."""
    sums: dict[str, int] = {}
    for process in psutil.process_iter(["name", "memory_info"]):
        if memory := process.info["memory_info"]:
            name = process.info["name"] or "?"
            sums[name] = sums.get(name, 0) + memory.rss
    return tuple(sorted(sums.items(), key=lambda pair: -pair[1])[:_PROGRAMS])


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _is_writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _encoding() -> str:
    """What the terminal or pipe would get without us: `cli.main` sets its own streams to UTF-8."""
    import locale

    return locale.getencoding().lower()


def _port(port: int) -> tuple[str, str]:
    """Why the port cannot be used, "" if it can, and who holds it."""
    with socket.socket() as probe_socket:
        if sys.platform != "win32":  # as the server does; there, it would mean to share the port
            probe_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe_socket.bind(("127.0.0.1", port))
        except OSError as error:
            taken = error.errno in (errno.EADDRINUSE, getattr(errno, "WSAEADDRINUSE", -1))
            return ("taken" if taken else str(error.strerror or error)), _holder(port)
    return "", ""


def _holder(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return str(psutil.Process(connection.pid).name()) if connection.pid else ""
    return ""


def _is_power_saver() -> bool:
    if sys.platform != "win32":
        return False
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["powercfg", "/getactivescheme"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return _WINDOWS_POWER_SAVER in done.stdout.lower()
    return False


def _line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _chosen(words: str) -> str:
    """The word in brackets: "always [madvise] never" -> "madvise"."""
    return words.partition("[")[2].partition("]")[0]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
