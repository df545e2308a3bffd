"""TLS as both carriers use it, on every request and to every node."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

from django_localqueue.exceptions import InvalidInput


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files. Verification cannot be switched off.

    ``ca`` holds the authorities to trust instead of the public ones. ``cert`` and ``key`` are
    what this client shows of itself; ``key`` may be left out if ``cert`` holds both.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if self.key is not None and self.cert is None:
            raise InvalidInput("The TLS option 'key' needs the option 'cert'.")
        for name in ("ca", "cert", "key"):
            path = getattr(self, name)
            if path is not None and not os.path.isfile(path):
                raise InvalidInput(f"The file of the TLS option {name!r} is not there: {path}")

    def context(self) -> ssl.SSLContext:
        """Return a context that verifies the nodes; raise ``InvalidInput`` for a bad file."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except (ssl.SSLError, OSError) as error:
            raise InvalidInput(f"The TLS files cannot be used: {error}") from error
        return context


def context_for(tls: Tls | None, url: str) -> ssl.SSLContext:
    """Return the context for nodes like ``url``; raise ``InvalidInput`` if it cannot be made."""
    if url.startswith("https:"):
        return (tls or Tls()).context()
    if tls is not None and tls != Tls():
        raise InvalidInput("TLS options are given, but the nodes are reached by plain http.")
    # Never used. It trusts nobody, and making it costs nothing.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def tls_error(error: BaseException) -> ssl.SSLError | None:
    """Return the TLS error that caused ``error``, if one did."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return cause
        waiting += [cause.__cause__, cause.__context__, getattr(cause, "reason", None)]
        waiting += [argument for argument in cause.args if isinstance(argument, BaseException)]
    return None


def refused_by_peer(error: ssl.SSLError) -> bool:
    """Tell whether the handshake was refused: then nothing of the request was looked at.

    A server that wants a certificate says so, in TLS 1.3, only after the client has begun to
    send; it answers with an alert and never reads on.
    """
    return isinstance(error, ssl.SSLCertVerificationError) or any(
        word in (error.reason or "") for word in ("ALERT", "WRONG_VERSION_NUMBER", "CERTIFICATE")
    )


def tls_text(error: ssl.SSLError) -> str:
    """Return what went wrong, and what to look at."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"TLS: the node's certificate is refused ({error.verify_message}); "
            "give its authority as 'ca', and use a host name that it names"
        )
    reason = (error.reason or "handshake failed").replace("_", " ").lower()
    if error.reason == "WRONG_VERSION_NUMBER":
        return f"TLS: {reason}; this port may speak plain http"
    if not error.reason or "ALERT" in error.reason:
        return f"TLS: {reason}; the node may want a client certificate ('cert', 'key')"
    return f"TLS: {reason}"
