"""Certificates for tests of TLS, made by the openssl command; without it they are skipped."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest


class Authority:
    """A certificate authority for one test, made by the openssl command."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.ca = str(folder / f"{name}.pem")
        self._key = str(folder / f"{name}.key")
        self._openssl(
            *("req", "-x509", *self._new_key(self._key), "-out", self.ca, "-subj", f"/CN={name}"),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )

    def issue(self, host: str) -> tuple[str, str]:
        """Return the paths of a certificate for ``host`` and of its key."""
        base = str(self.folder / f"{self.name}-{host}")
        cert, key, request, extra = (f"{base}.{end}" for end in ("pem", "key", "csr", "ext"))
        Path(extra).write_text(
            f"subjectAltName=DNS:{host}\nbasicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n"
        )
        self._openssl("req", *self._new_key(key), "-out", request, "-subj", f"/CN={host}")
        self._openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self._key),
            *("-CAcreateserial", "-extfile", extra, "-out", cert),
        )
        return cert, key

    def _new_key(self, path: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path]

    def _openssl(self, *arguments: str) -> None:
        try:
            subprocess.run(["openssl", *arguments], check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("the openssl command, which makes the certificates, was not found")


def server_context(authority: Authority, host: str, mutual: bool = False) -> ssl.SSLContext:
    """Return what a server of that name needs; ``mutual``: its clients show certificates too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(host))
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca)
    return context
